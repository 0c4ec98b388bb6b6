"""Measure the gradients before an optimizer's step, and decide whether the step must be examined."""

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


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers that were read in one step. `gradients` has None for a parameter without a gradient."""

    gradients: list[float | None]
    weights: list[float] | None
    #: the mean of the losses, or None if there was none
    loss: float | None


@torch.no_grad()
def measure(parameters: Sequence[Tensor], *, losses: Sequence[Tensor] = (), weights: bool = False) -> Measured:
    """Measure the gradients of some parameters. All numbers are read together, so this waits for the device once.

    Args:
        parameters: The parameters.
        losses: The losses of the step.
        weights: If True, measure the parameters too.
    """
    places = [at for at, one in enumerate(parameters) if one.grad is not None and one.grad.layout is torch.strided]
    gradients = [gradient.detach() for at in places if (gradient := parameters[at].grad) is not None]
    values = [parameter.detach() for parameter in parameters] if weights else []
    numbers = _read([*_norms([*gradients, *values]), *losses])
    found: list[float | None] = [None] * len(parameters)
    for place, norm in zip(places, numbers, strict=False):
        found[place] = norm
    read = numbers[len(places) + len(values) :]
    return Measured(
        found,
        numbers[len(places) : len(places) + len(values)] if weights else None,
        sum(read) / len(read) if read else None,
    )


def _norms(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the norm of each tensor. A norm in half precision would overflow, so it is computed in float32."""
    half = (torch.float16, torch.bfloat16)
    return private.foreach_norm([one.float() if one.dtype in half else one for one in tensors]) if tensors else []


def _read(scalars: Sequence[Tensor]) -> list[float]:
    """Read scalars from the device, all at once."""
    if not scalars:
        return []
    device = scalars[0].device
    dtype = torch.float64 if any(one.dtype is torch.float64 for one in scalars) else torch.float32
    return [float(one) for one in torch.stack([one.reshape(()).to(device, dtype) for one in scalars]).tolist()]


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
        """Return why the step must be examined, or None. The numbers of a healthy step are remembered."""
        for name, number in numbers.items():
            if number is not None and not math.isfinite(number):
                return f"{name} is not finite"
        for name, number in numbers.items():
            past = self._past.get(name, ())
            if number is not None and len(past) >= WARM_UP and number > LEAP * (usual := median(past)) > 0.0:
                self._remember(numbers)
                return f"{name} is {number:.3g}, and was {usual:.3g} before"
        self._remember(numbers)
        return None

    def _remember(self, numbers: Mapping[str, float | None]) -> None:
        for name, number in numbers.items():
            if number is not None:
                self._past.setdefault(name, deque(maxlen=PAST)).append(number)
