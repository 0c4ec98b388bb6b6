"""Report each step of an optimizer once, before and after it."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from tenterhook.record.containment import ContainedErrors
from tenterhook.rig.step.outer_step import OuterStep
from tenterhook.torch_internals import compiler as dynamo

Event = Callable[[Optimizer], None]

#: what fails if a step cannot be watched
WATCHING = "watching the steps of an optimizer"


class StepWatch:
    """Hooks on optimizers that report their steps.

    Args:
        optimizers: The optimizers.
        before: Function that is called with an optimizer before its step.
        after: Function that is called with an optimizer after its step.
        errors: Receives the errors of watching, which must not stop the training.
    """

    def __init__(self, optimizers: Iterable[Optimizer], before: Event, after: Event, errors: ContainedErrors) -> None:
        self._before, self._after = before, after
        self._errors = errors
        self._outer: weakref.WeakKeyDictionary[Optimizer, OuterStep] = weakref.WeakKeyDictionary()
        self._handles: list[RemovableHandle] = []
        for one in optimizers:
            self._outer[one] = OuterStep()
            self._handles += [one.register_step_pre_hook(self._pre), one.register_step_post_hook(self._post)]

    def remove(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @dynamo.breaks_graph
    def _pre(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        frame = sys._getframe(1)  # that of `optimizer.step()`
        self._errors.contain(WATCHING, self._begin, optimizer, frame)

    @dynamo.breaks_graph
    def _post(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._errors.contain(WATCHING, self._end, optimizer)

    def _begin(self, optimizer: Optimizer, frame: FrameType) -> None:
        if self._outer[optimizer].begin(frame):
            self._before(optimizer)

    def _end(self, optimizer: Optimizer) -> None:
        if self._outer[optimizer].ends_here():
            self._outer[optimizer].clear()
            self._after(optimizer)
