"""Tell rigs when a program assigns a module or a parameter to a module.

PyTorch reports assignments such as `model.head = nn.Linear(8, 2)`, but neither deletions nor writes to its own dicts.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils.hooks import RemovableHandle

from tenterhook.torch_internals import compiler as dynamo


class Listener(Protocol):
    """Receives assignments to any module in the process."""

    def assigned(self, parent: nn.Module, new: object) -> None: ...


_listeners: weakref.WeakSet[Any] = weakref.WeakSet()
_handles: list[RemovableHandle] = []


def listen(listener: Listener) -> None:
    """Call `listener.assigned` before each assignment, until the listener is freed or `ignore` is called."""
    _listeners.add(listener)
    if not _handles:
        _handles.append(register_module_module_registration_hook(_assigned))
        _handles.append(register_module_parameter_registration_hook(_assigned))


def ignore(listener: Listener) -> None:
    """Stop calling a listener."""
    _listeners.discard(listener)
    if not _listeners:
        for handle in _handles:
            handle.remove()
        _handles.clear()


@dynamo.skip_dynamo
def _assigned(parent: nn.Module, name: str, new: object) -> None:
    if is_dynamo_compiling():
        return  # the compiler assigns parts of its own modules
    for listener in tuple(_listeners):
        listener.assigned(parent, new)
