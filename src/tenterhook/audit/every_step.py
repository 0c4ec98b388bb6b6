"""See every step of every optimizer in the process, whether or not the optimizer was given to `attach`."""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any, Protocol

from torch.compiler import is_dynamo_compiling
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle


class StepWatcher(Protocol):
    """Receives every step that is not part of another step."""

    def before_step(self, optimizer: Optimizer, *, closure: bool) -> None: ...
    def after_step(self, optimizer: Optimizer) -> None: ...


#: the code that runs the hooks of a step, for every class of optimizers
_STEP = Optimizer.profile_hook_step(lambda: None).__code__
_watchers: weakref.WeakSet[Any] = weakref.WeakSet()
_handles: list[RemovableHandle] = []
#: the frame of the outermost running step; an optimizer may call the step of another one, or its own a second time
_outermost = 0


def watch(watcher: StepWatcher) -> None:
    """Call `watcher` before and after every step."""
    _watchers.add(watcher)
    if not _handles:
        _handles.append(register_optimizer_step_pre_hook(_before))
        _handles.append(register_optimizer_step_post_hook(_after))


def unwatch(watcher: StepWatcher) -> None:
    """Stop calling `watcher`."""
    _watchers.discard(watcher)
    # PyTorch iterates over the hooks during a step. If they must stay, they do nothing, and the next rig uses them.
    if not _watchers and not _is_stepping(sys._getframe(1)):
        for handle in _handles:
            handle.remove()
        _handles.clear()


def _before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    global _outermost
    if is_dynamo_compiling():
        return  # a compiled step; the hooks of a rig would have interrupted its compilation
    frame = sys._getframe(1)
    if _is_inside(frame.f_back):
        return
    _outermost = id(frame)
    closure = kwargs.get("closure") is not None or any(map(callable, args[1:2]))
    for watcher in tuple(_watchers):
        watcher.before_step(optimizer, closure=closure)


def _after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    global _outermost
    if is_dynamo_compiling() or id(sys._getframe(1)) != _outermost:
        return
    _outermost = 0
    for watcher in tuple(_watchers):
        watcher.after_step(optimizer)


def _is_stepping(frame: FrameType | None) -> bool:
    """Return True if a step of any optimizer is on the stack."""
    while frame is not None:
        if frame.f_code is _STEP:
            return True
        frame = frame.f_back
    return False


def _is_inside(frame: FrameType | None) -> bool:
    """Return True if the outermost step is on the stack. It is not there after an error."""
    while _outermost and frame is not None:
        if id(frame) == _outermost:
            return True
        frame = frame.f_back
    return False
