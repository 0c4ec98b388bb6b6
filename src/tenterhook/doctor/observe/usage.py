"""Record how the program uses the object of a hook: backward passes, optimizers and calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(slots=True)
class MissedBackward:
    """A backward pass in which a hook did not fire, and facts that may explain why."""

    #: how the program started the backward pass: `backward`, `backward(inputs=...)` or `autograd.grad`
    backward: str
    #: True if the hook's owner, or one of the owner's parameters, was in the graph
    inside: bool
    #: True if the owner still existed
    alive: bool = True
    frozen: bool = False
    replaced: bool = False
    #: True if FSDP2 or tensor parallelism replaced the parameter with a shard
    sharded: bool = False
    #: True if FSDP2 did not reduce gradients in this backward pass
    unsynced: bool = False
    #: True if parameters of the module were in the graph
    used: bool = False
    #: True if the forward pass ran before the hook was registered
    late: bool = False
    #: the class name of the hooked model, if another model of the same class ran instead
    other: str | None = None


@dataclass(slots=True)
class OptimizerUse:
    """The steps of one optimizer."""

    kind: str
    steps: int = 0
    #: the number of steps of all optimizers before the first and before the last step of this one
    first: int = -1
    last: int = -1
    #: for an optimizer with a scheduler: True if it took a step with a gradient
    with_gradients: bool = False
    #: the ids of the parameters that it steps
    parameters: frozenset[int] = frozenset()


@dataclass(slots=True)
class Calls:
    """The number of calls to one module, and facts that were observed in these calls."""

    count: int = 0
    without_grad: int = 0
    #: calls whose output does not require grad although gradients were enabled
    constant: int = 0
    #: the class name of an output in which PyTorch finds no tensors for backward hooks
    odd: str | None = None

    def note(self, out: Any) -> None:
        self.count += 1
        if not torch.is_grad_enabled():
            self.without_grad += 1
        elif not isinstance(out, Tensor) and not (
            isinstance(out, tuple) and all(not isinstance(o, dict | list | tuple) for o in out)
        ):
            self.odd = type(out).__name__
        else:
            shown = out if isinstance(out, tuple) else (out,)
            self.constant += not any(isinstance(one, Tensor) and one.requires_grad for one in shown)
