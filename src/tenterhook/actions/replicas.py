"""Define the observer that compares the replicas of a model, and the digest that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
import torch
from torch import Tensor

from tenterhook.actions.context import Context
from tenterhook.actions.registry import BUILTIN, action

#: number of bits of a digest
BITS = 61
#: number of words in a row, and of rows that are read at a time
_WIDTH, _ROWS = 4096, 32
#: odd constants of the SplitMix64 generator, as signed integers
_STEP, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685


class ReplicaDigest:
    """Computes digests of tensors that are equal on all ranks with the same bits.

    A tensor is read as words of 64 bits. Its digest is a sum modulo 2**64: each word, and once more its upper half, is
    multiplied by an odd number that depends on its place. Without the halves, the highest bits of two words could
    change together unseen, such as the signs of two numbers.

    Args:
        seed: Selects the odd numbers. A rare difference that the digests of one seed miss, those of the next one see.
        device: The device of the tensors.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seed = seed
        self._places = _odd_numbers(_WIDTH, seed, device)
        self._halves = _odd_numbers(_WIDTH, seed + 2, device)
        self._rows = _odd_numbers(64, ~seed, device)

    def of(self, tensor: Tensor) -> Tensor:
        """Return the digest of a flat, contiguous tensor, as an integer without dimensions."""
        data = torch.view_as_real(tensor.resolve_conj()).view(-1) if tensor.is_complex() else tensor.resolve_neg()
        each = 8 // data.element_size()
        rest = data.numel() % each
        digest = self._of_words(_as_words(data[: data.numel() - rest]))
        if rest:
            last = data.new_zeros(each)
            last[:rest] = data[-rest:]
            word = last.view(torch.int64)[0]
            digest = digest + word * self._rows[0] + (word >> 32) * self._halves[0] * self._rows[0]
        return digest

    def _of_words(self, words: Tensor) -> Tensor:
        whole = words.numel() // _WIDTH
        rest = words[whole * _WIDTH :]
        digest = _dot(rest, self._places[: rest.numel()]) + _dot(rest >> 32, self._halves[: rest.numel()])
        if whole:
            if len(self._rows) <= whole:
                self._rows = _odd_numbers(2 * whole, ~self._seed, words.device)
            # The halves of some rows stay in the cache of the processor.
            some = words[: whole * _WIDTH].view(whole, _WIDTH).split(_ROWS)
            sums = [_product(rows, self._places) + _product(rows >> 32, self._halves) for rows in some]
            digest = digest + _dot(torch.cat(sums), self._rows[1 : whole + 1])
        return digest

    def total(self, digests: Sequence[Tensor]) -> Tensor:
        """Return one digest of several ones, as a number below 2**61."""
        stacked = torch.stack(list(digests))
        return _shorten(_dot(stacked, _odd_numbers(len(stacked), self._seed + 1, stacked.device)))


def shorten(digests: Sequence[Tensor]) -> list[int]:
    """Return digests as numbers below 2**61. This waits for their devices."""
    numbers: list[int] = _shorten(torch.stack([one.to("cpu") for one in digests])).tolist() if digests else []
    return numbers


def flat(tensor: Tensor) -> Tensor:
    """Return a tensor in one dimension. A tensor with another order in memory is copied, and so is a quantized one."""
    return (tensor.int_repr() if tensor.is_quantized else tensor).reshape(-1).contiguous()


def _shorten(digest: Tensor) -> Tensor:
    highest: Tensor = (digest >> (64 - BITS)) & (2**BITS - 1)  # the highest bits depend on all bits of the words
    return highest


def _odd_numbers(count: int, seed: int, device: torch.device) -> Tensor:
    mixed = torch.arange(1, count + 1, device=device) * _STEP + seed
    mixed = (mixed ^ (mixed >> 30)) * _FIRST
    mixed = (mixed ^ (mixed >> 27)) * _SECOND
    return (mixed ^ (mixed >> 31)) | 1


def _as_words(data: Tensor) -> Tensor:
    if data.storage_offset() * data.element_size() % 8:  # PyTorch does not read words that are not aligned
        data = data.clone()
    return data.view(torch.int64)


def _product(rows: Tensor, weights: Tensor) -> Tensor:
    # Only the CPU multiplies matrices of integers. It needs about as long as for a norm.
    return rows @ weights if rows.device.type == "cpu" else (rows * weights).sum(1)


def _dot(words: Tensor, weights: Tensor) -> Tensor:
    return torch.dot(words, weights) if words.device.type == "cpu" else (words * weights).sum()


@action("replicas", registry=BUILTIN, at=("grad_final",))
def replicas(
    x: Tensor,
    ctx: Context,
    *,
    every: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64,
    on_difference: Literal["warn", "raise"] = "warn",
) -> None:
    """Compare each parameter and its reduced gradient with the replicas on other ranks, before the optimizer's step.

    The bits must be equal. Gradients are compared before other hooks at `grad_final` change them; sparse gradients are
    not compared. Parameters that DDP keeps equal have replicas, and so have the shards of HSDP, parameters
    that tensor parallelism replicates, and tensors of a model that each rank trains in the same way. Buffers, random
    number generators and shards without a replica are not compared. If each rank has its own version of a tensor, such
    as its own experts, leave it out: `on=("**", "!experts.**")`.

    In each step, one of `every` parts of the model is compared, so a difference is found within `every` steps. The
    digests travel with the numbers that the ranks exchange anyway. If they differ, a second exchange finds the tensor,
    the ranks, and what the difference looks like. It is reported once, as TH709, and the hook is muted. On one process,
    nothing is compared. On an accelerator, the digests of a step are compared one step later, so that nothing waits.

    Args:
        every: Number of steps in which all elements are compared once. With 1, all of them are compared in each step.
        on_difference: `"warn"` reports a difference. `"raise"` raises a RanksError on all ranks before the step, and
            waits for the device in each step.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: A parameter is outside its range.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> hook = th.Hook("replicas", on="**", at="grad_final", do=th.replicas(every=1))
        >>> rig = th.attach(model, hook, optimizer=optimizer)
        >>> model(torch.ones(1, 2)).sum().backward()
        >>> optimizer.step()
        >>> rig.ledger["replicas"].fired
        2
    """


replicas.across_ranks = "equal"
