"""Measure the gradients and weights before an optimizer's step, with one read from the device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook import torch_internals as private
from tenterhook.resolve.sharding import is_counted_here, local
from tenterhook.verdict.history import GroupSettings

#: number of elements of each parameter that are compared from step to step
SAMPLED = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers that were read in one step. A list has None for a parameter that could not be measured."""

    gradients: list[float | None]
    #: how far the sampled elements moved since the last step
    moved: list[float | None]
    weights: list[float | None] | None
    #: the mean of the losses, or None if there was none
    loss: float | None


class WeightSamples:
    """A few elements of each parameter. They show how far each step moves it, at nearly no cost."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._views: list[Tensor] = []
        self._addresses: list[int] = []
        self._before: Tensor | None = None

    @torch.no_grad()
    def moved(self, parameters: Sequence[Tensor]) -> tuple[list[int], Tensor | None]:
        """Return the places of the sampled parameters, and how far each of them moved since the last call."""
        addresses = [one.data_ptr() for one in parameters]
        if addresses != self._addresses:
            self._find(parameters)
            self._addresses = addresses
        if not self._views:
            return [], None
        now = torch.cat(self._views).view(-1, SAMPLED)
        before, self._before = self._before, now
        if before is None or before.shape != now.shape:
            return [], None
        moved = now - before
        half = moved.dtype in (torch.float16, torch.bfloat16)
        return self._places, torch.linalg.vector_norm(moved.float() if half else moved, dim=1)

    def _find(self, parameters: Sequence[Tensor]) -> None:
        self._places, self._views = [], []
        for place, one in enumerate(parameters):
            fits = one.is_contiguous() and one.numel() >= SAMPLED and one.device == parameters[0].device
            if fits and one.is_floating_point():
                self._places.append(place)
                self._views.append(one.detach().view(-1)[:: one.numel() // SAMPLED][:SAMPLED])


@torch.no_grad()
def measure(
    parameters: Sequence[Tensor],
    places: Iterable[int],
    *,
    losses: Sequence[Tensor] = (),
    samples: WeightSamples | None = None,
    weights: bool = False,
    together: bool = False,
) -> Measured:
    """Measure the gradients of some parameters. All numbers are read together, so this waits for the device once.

    Args:
        parameters: The parameters.
        places: The places of the parameters whose gradients are measured.
        losses: The losses of the step.
        samples: Measure how far these samples moved.
        weights: If True, measure the norms of the parameters too.
        together: If True, measure the parts that all ranks have, and the mean of their losses. All ranks get the same
            numbers.
    """
    found = [(at, grad) for at in places if (grad := parameters[at].grad) is not None]
    gradients = [(at, _dense(local(one) if together else one)) for at, one in found]
    values = [local(one.detach()) for one in parameters] if together else parameters
    sampled, distances = samples.moved(values) if samples is not None else ([], None)
    norms = _norms([*(one for _, one in gradients), *(values if weights else ())])
    parts = [
        _Part([at for at, _ in gradients], norms[: len(gradients)]),
        _Part(sampled, [] if distances is None else [distances]),
        _Part(list(range(len(parameters))) if weights else [], norms[len(gradients) :]),
        _Part([0] * len(losses), losses),
    ]
    if together:
        read = _read_together(parts, [float(is_counted_here(one)) for one in parameters])
    else:
        read = _read(parts, len(parameters))
    lengths, moved, weighed, loss = read
    return Measured(lengths, moved, weighed if weights else None, loss[0])


@dataclass(frozen=True, slots=True)
class _Part:
    """Numbers of one kind, and the places of the parameters that they belong to."""

    places: list[int]
    numbers: Sequence[Tensor]


Read = tuple[list[float | None], list[float | None], list[float | None], list[float | None]]


def _read(parts: Sequence[_Part], count: int) -> Read:
    """Read the numbers of this process."""
    numbers = iter(_flat([one for part in parts for one in part.numbers]).tolist())
    found: list[list[float | None]] = [[None] * count for _ in parts[:-1]]
    for row, part in zip(found, parts, strict=False):
        for place in part.places:
            row[place] = next(numbers)
    losses = list(numbers)
    return found[0], found[1], found[2], [sum(losses) / len(losses) if losses else None]


def _read_together(parts: Sequence[_Part], shares: Sequence[float]) -> Read:
    """Read the numbers of all ranks. The squares of norms are added. A part that several ranks have is counted once.

    The layout is the same on all ranks, although a rank may have a gradient that another one does not have.
    """
    count = len(shares)
    flat = _flat([one for part in parts for one in part.numbers])
    device = flat.device if flat.numel() else torch.device("cpu")
    sums = torch.zeros(2, len(parts), max(count, 1), dtype=torch.float64, device=device)
    weights = torch.tensor([*shares, *([1.0] if not count else [])], dtype=torch.float64, device=device)
    sizes = [len(part.places) for part in parts]
    for kind, (part, numbers) in enumerate(zip(parts, flat.split(sizes), strict=True)):
        if not part.places:
            continue
        places = torch.tensor(part.places, device=device)
        values = numbers.double()
        is_loss = kind == len(parts) - 1
        sums[0, kind].index_add_(0, places, values if is_loss else values.square() * weights[places])
        sums[1, kind].index_add_(0, places, torch.ones_like(values))
    values, counts = ranks.sum_over_ranks(sums).tolist()
    found = [
        [math.sqrt(value) if times else None for value, times in zip(row, many, strict=True)][:count]
        for row, many in zip(values[:-1], counts[:-1], strict=True)
    ]
    return found[0], found[1], found[2], [values[-1][0] / counts[-1][0] if counts[-1][0] else None]


def _dense(gradient: Tensor) -> Tensor:
    """Return the values of a sparse gradient, and any other gradient as it is."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _norms(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the norm of each tensor. A norm in half precision would overflow, so it is computed in float32."""
    half = (torch.float16, torch.bfloat16)
    return private.foreach_norm([one.float() if one.dtype in half else one for one in tensors]) if tensors else []


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of small tensors in one tensor."""
    if not tensors:
        return torch.zeros(0)
    kinds = {(one.device, one.dtype) for one in tensors}
    if len(kinds) > 1:
        device = tensors[0].device
        dtype = torch.float64 if any(dtype is torch.float64 for _, dtype in kinds) else torch.float32
        tensors = [one.to(device, dtype) for one in tensors]
    return torch.cat([one.reshape(-1) for one in tensors])


def group_settings(optimizers: Sequence[Optimizer]) -> tuple[GroupSettings, ...]:
    """Read the learning rate and the weight decay of each parameter group."""
    return tuple(
        GroupSettings(float(group.get("lr", math.nan)), float(group.get("weight_decay", 0.0) or 0.0))
        for optimizer in optimizers
        for group in optimizer.param_groups
    )
