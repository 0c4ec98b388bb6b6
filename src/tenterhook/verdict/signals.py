"""Measure the gradients and weights before an optimizer's step, and decide whether the step must be examined."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.verdict.history import GroupSettings

#: number of steps that a leap is compared with
PAST = 32
#: number of steps before leaps are looked for
WARM_UP = 10
#: a number leaps if it is so many times larger than usual
LEAP = 8.0
#: ... and so many times larger than the largest of the recent numbers
BEYOND = 3.0
#: number of elements of each parameter that are compared from step to step
SAMPLED = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers that were read in one step. A list has None for a parameter that could not be measured."""

    gradients: list[float | None]
    #: how far the sampled elements moved since the last step
    moved: list[float | None]
    weights: list[float] | None
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
        return self._places, torch.linalg.vector_norm(now - before, dim=1, dtype=torch.float32)

    def _find(self, parameters: Sequence[Tensor]) -> None:
        self._places, self._views = [], []
        for place, one in enumerate(parameters):
            fits = one.is_contiguous() and one.numel() >= SAMPLED and one.device == parameters[0].device
            if fits and one.is_floating_point():
                flat = one.detach().view(-1)
                self._places.append(place)
                self._views.append(flat[:: one.numel() // SAMPLED][:SAMPLED])


@torch.no_grad()
def measure(
    parameters: Sequence[Tensor],
    *,
    losses: Sequence[Tensor] = (),
    samples: WeightSamples | None = None,
    weights: bool = False,
) -> Measured:
    """Measure the gradients of some parameters. All numbers are read together, so this waits for the device once.

    Args:
        parameters: The parameters.
        losses: The losses of the step.
        samples: Measure how far these samples moved.
        weights: If True, measure the norms of the parameters too.
    """
    places = [at for at, one in enumerate(parameters) if one.grad is not None and one.grad.layout is torch.strided]
    gradients = [gradient.detach() for at in places if (gradient := parameters[at].grad) is not None]
    values = [parameter.detach() for parameter in parameters] if weights else []
    sampled, distances = samples.moved(parameters) if samples is not None else ([], None)
    numbers = iter(_read([*_norms([*gradients, *values]), *losses, *([] if distances is None else [distances])]))
    norms: list[float | None] = [None] * len(parameters)
    moved: list[float | None] = [None] * len(parameters)
    for place in places:
        norms[place] = next(numbers)
    lengths = [next(numbers) for _ in values]
    read = [next(numbers) for _ in losses]
    for place in sampled:
        moved[place] = next(numbers)
    return Measured(norms, moved, lengths if weights else None, sum(read) / len(read) if read else None)


def _norms(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the norm of each tensor. A norm in half precision would overflow, so it is computed in float32."""
    half = (torch.float16, torch.bfloat16)
    return private.foreach_norm([one.float() if one.dtype in half else one for one in tensors]) if tensors else []


def _read(tensors: Sequence[Tensor]) -> list[float]:
    """Read small tensors from the device, all at once."""
    if not tensors:
        return []
    device = tensors[0].device
    dtype = torch.float64 if any(one.dtype is torch.float64 for one in tensors) else torch.float32
    return [float(one) for one in torch.cat([one.reshape(-1).to(device, dtype) for one in tensors]).tolist()]


def group_settings(optimizers: Sequence[Optimizer]) -> tuple[GroupSettings, ...]:
    """Read the learning rate and the weight decay of each parameter group."""
    return tuple(
        GroupSettings(float(group.get("lr", math.nan)), float(group.get("weight_decay", 0.0) or 0.0))
        for optimizer in optimizers
        for group in optimizer.param_groups
    )


class LeapDetector:
    """An object that notices when one of a few numbers is not finite, or far larger than in the steps before."""

    def __init__(self) -> None:
        self._past: dict[str, deque[float]] = {}

    def look(self, numbers: Mapping[str, float | None]) -> str | None:
        """Return why the step must be examined, or None. The numbers are remembered if they are finite."""
        for name, number in numbers.items():
            if number is not None and not math.isfinite(number):
                return f"{name} is not finite"
        reason = next((why for name, number in numbers.items() if (why := self._leap(name, number))), None)
        for name, number in numbers.items():
            if number is not None:
                self._past.setdefault(name, deque(maxlen=PAST)).append(abs(number))
        return reason

    def _leap(self, name: str, number: float | None) -> str | None:
        past = self._past.get(name, ())
        if number is None or len(past) < WARM_UP or abs(number) <= BEYOND * max(past):
            return None
        usual = median(past)
        return f"{name} is {number:.3g}, and was {usual:.3g} before" if abs(number) > LEAP * usual > 0.0 else None
