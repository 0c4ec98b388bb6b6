"""Measure the gradients before an optimizer's step, and decide whether the step must be examined."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
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


def gradient_norms(parameters: Sequence[Tensor]) -> list[float | None]:
    """Return the norm of each parameter's gradient, and None without a gradient. This waits for the device once."""
    places, gradients = [], []
    for place, parameter in enumerate(parameters):
        gradient = parameter.grad
        if gradient is not None and gradient.layout is torch.strided:
            places.append(place)
            gradients.append(gradient.detach())
    found: list[float | None] = [None] * len(parameters)
    for place, norm in zip(places, norms(gradients), strict=True):
        found[place] = norm
    return found


@torch.no_grad()
def norms(tensors: Sequence[Tensor]) -> list[float]:
    """Return the norm of each tensor. A norm in half precision would overflow, so it is computed in float32."""
    if not tensors:
        return []
    half = [tensor.dtype in (torch.float16, torch.bfloat16) for tensor in tensors]
    if any(half):
        tensors = [tensor.float() if small else tensor for tensor, small in zip(tensors, half, strict=True)]
    found = private.foreach_norm(list(tensors))
    first = found[0].device
    return [float(norm) for norm in torch.stack([one.to(first, torch.float64) for one in found]).tolist()]


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
