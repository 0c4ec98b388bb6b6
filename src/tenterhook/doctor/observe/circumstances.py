"""Record the circumstances in which a forward hook fires: the pass, the mode of the module, the form of the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.timeline import Timeline

#: layers that compute something else in training mode
_TWO_MODES = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
)


@dataclass(slots=True)
class Circumstances:
    """Holds what was special about the calls of a forward hook."""

    #: firings in evaluation mode before the first backward pass, and after it
    early: int = 0
    late: int = 0
    #: True if gradients were disabled in the first firing
    first_without_grad: bool = False
    #: forward passes with gradients in which the hook fired, and the numbers of steps before the first and the last
    training_passes: int = 0
    steps: tuple[int, int] = (0, 0)
    #: the class of a layer that was in training mode while gradients were disabled, or None
    unready: str | None = None
    #: firings inside `vmap`
    vmapped: int = 0
    #: firings with a `PackedSequence`
    packed: int = 0
    #: firings in passes whose batch has two equal halves
    doubled: int = 0
    #: the number of tokens in the first call of a pass, and the number of later calls with one token
    tokens: tuple[int, int] = (0, 0)
    #: the last pass, and the number of tokens in its first call
    _pass: tuple[int, int] = (-1, 0)
    _fired: int = 0

    def note(self, args: tuple[Any, ...], timeline: Timeline, owner_name: str) -> None:
        """Note the circumstances of a firing with these arguments."""
        module = args[0] if args and isinstance(args[0], nn.Module) else None
        within = timeline.within
        number = within.number if within is not None else -1
        given = next(_tensors(args[1:]), None)
        if not self._fired:
            self.first_without_grad = not torch.is_grad_enabled()
        if module is not None and not module.training:
            self.early += not timeline.backwards
            self.late += bool(timeline.backwards)
        elif torch.is_grad_enabled() and (number != self._pass[0] or number < 0):
            self.steps = (self.steps[0] if self.training_passes else timeline.steps, timeline.steps)
            self.training_passes += 1
        if module is not None and module.training and not torch.is_grad_enabled() and self._fired < 4:
            model = within.model() if within is not None else None
            self.unready = self.unready or _unready(model if isinstance(model, nn.Module) else module, owner_name)
        self.vmapped += given is not None and private.is_batched(given)
        self.packed += any(isinstance(one, PackedSequence) for one in _flat(args[1:]))
        self.doubled += within is not None and within.doubled
        self._count_tokens(given, number)
        self._fired += 1

    def _count_tokens(self, given: Tensor | None, number: int) -> None:
        length = given.shape[1] if given is not None and given.dim() >= 2 else 0
        if number != self._pass[0] or number < 0:
            self._pass = number, length
        elif length == 1 and self._pass[1] > 1:
            self.tokens = self._pass[1], self.tokens[1] + 1


def _unready(model: nn.Module, name: str) -> str | None:
    """Return the class of a layer in training mode, in the part of the model to which the hooked module belongs."""
    first, _, rest = name.partition(".")
    part = private.child_modules(model).get(first) if rest else None
    layers = (part or model).modules()
    found = (one for one in layers if one.training and isinstance(one, _TWO_MODES) and getattr(one, "p", 1.0) != 0.0)
    return next((type(one).__name__ for one in found), None)


def has_equal_halves(values: Any) -> bool:
    """Return True if the first tensor among the arguments of a model has a batch whose two halves are equal."""
    batch = next(_tensors(values), None)
    if batch is None or batch.dim() < 2 or len(batch) < 2 or not batch.is_floating_point():
        return False
    if private.is_functorch(batch) or batch.device.type == "meta" or type(batch) is not Tensor:
        return False
    half = len(batch) // 2
    return (
        batch[0].numel() > 1 and torch.equal(batch[:half], batch[half:]) and bool((batch[:half] != batch[0, 0]).any())
    )


def _tensors(values: Any) -> Iterator[Tensor]:
    return (one for one in _flat(values) if isinstance(one, Tensor))


def _flat(values: Any) -> Iterator[Any]:
    """Yield the values in nested tuples, lists and dicts. A `PackedSequence` is one value."""
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, tuple | list | dict) and not isinstance(value, PackedSequence):
            yield from _flat(value)
        else:
            yield value
