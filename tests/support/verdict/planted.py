"""Plant faults in a training: at a step, in a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class BadGradient(torch.autograd.Function):
    """Return the input, and a gradient that is not finite."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient / (gradient * 0)


#: what a module does to its output, by the name of the fault
FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "forward-nan": lambda y: y + (y.detach() * 0 - 1).log(),
    "forward-infinity": lambda y: y / (y.detach() * 0),
    "forward-overflow": lambda y: y.exp() * torch.finfo(y.dtype).max * 4,
    "backward-root": lambda y: y + (y * 0).abs().sqrt(),
    "backward-function": BadGradient.apply,
    "backward-hidden": lambda y: torch.where(y.detach() * 0 == 0, y, y / (y * 0)),
}


class Planted:
    """A fault in the output of a module, while `active` is True.

    Args:
        module: The module.
        fault: A name in FAULTS.
    """

    def __init__(self, module: nn.Module, fault: str) -> None:
        self.active = False
        self._original, self._fault = module.forward, FAULTS[fault]
        module.forward = self  # type: ignore[method-assign, assignment]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self._original(*args, **kwargs)
        if not self.active:
            return output
        return (self._fault(output[0]), *output[1:]) if isinstance(output, tuple) else self._fault(output)
