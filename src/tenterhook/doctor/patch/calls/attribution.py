"""Find the hook to which an observed call belongs."""

from __future__ import annotations

import inspect
import threading
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, MULTI, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.calls.code_calls import arguments as call_arguments
from tenterhook.torch_internals.code_owner import is_ours

_TORCH = str(Path(torch.__file__).parent)
_JIT = str(Path(_TORCH) / "jit" / "_trace.py")
_NOT_CALLED_AT_ONCE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class CalledCode(NamedTuple):
    """The code that runs when PyTorch calls a hook's function."""

    code: CodeType
    #: number of arguments before those that PyTorch passes, such as `self` or the arguments of a partial
    skip: int


def called_code(fn: Any) -> CalledCode | None:
    """Return the code that runs when `fn` is called, or None if its calls cannot be observed.

    They cannot be observed if `fn` is not written in Python, such as a built-in function, if it is a module, whose
    `__call__` all modules share, or if its code runs later, as in a generator.
    """
    skip = 0
    while isinstance(fn, partial):
        skip += len(fn.args)
        fn = fn.func
    if isinstance(fn, MethodType):
        skip, fn = skip + 1, fn.__func__
    elif not isinstance(fn, FunctionType) and not isinstance(fn, nn.Module | type):
        skip, fn = skip + 1, next((vars(one)["__call__"] for one in type(fn).__mro__ if "__call__" in vars(one)), None)
    if not isinstance(fn, FunctionType) or fn.__code__.co_flags & _NOT_CALLED_AT_ONCE:
        return None
    return CalledCode(fn.__code__, skip)


class Call(NamedTuple):
    """A call that belongs to a hook."""

    record: HookRecord
    args: tuple[Any, ...]
    #: True if the owner of the hook was copied, and the call belongs to the copy
    of_a_copy: bool


class Attribution:
    """An index of the hooks by their code and their owner."""

    def __init__(self) -> None:
        self._hooks: dict[tuple[int, Any], list[tuple[HookRecord, int]]] = {}
        self._by_handle: dict[int, tuple[HookRecord, int]] = {}
        #: the hooks whose owner is not among their arguments, by their code
        self._without_owner: dict[int, list[tuple[HookRecord, int]]] = {}

    def add(self, record: HookRecord, called: CalledCode) -> None:
        """Add a hook that was registered."""
        self._hooks.setdefault((id(called.code), _owner_key(record)), []).append((record, called.skip))
        if record.kind in (MULTI, private.STATE_REGISTRARS[1]):
            self._without_owner.setdefault(id(called.code), []).append((record, called.skip))
        else:
            self._by_handle[record.handle.id] = record, called.skip

    def find(self, frame: FrameType) -> Call | None:
        """Return the hook that PyTorch calls with this frame, or None if the program itself calls the function."""
        back = frame.f_back
        while back is not None and is_ours(back.f_code.co_filename):
            back = back.f_back
        if back is None or not back.f_code.co_filename.startswith(_TORCH):
            return None
        arguments, _ = call_arguments(frame)
        number = private.running_hook(back)
        if number is not None:
            known = self._by_handle.get(number)
            if known is None or known[0].kind not in FORWARD:
                return None
            record, skip = known
            args = record.passed_of(arguments[skip:])
            return Call(record, args, not args or args[0] is not record.owner.now())
        code = id(frame.f_code)
        found = self._of_objects(code, arguments) or self._of_node(code) or self._without_owner.get(code)
        if not found:
            return None
        record, skip = _chosen(found, len(arguments))
        return Call(record, record.passed_of(arguments[skip:]), False)

    def _of_objects(self, code: int, arguments: tuple[Any, ...]) -> list[tuple[HookRecord, int]]:
        """Return the hooks whose owner is an argument of the call."""
        owners = (one for one in arguments if isinstance(one, nn.Module | Tensor | torch.optim.Optimizer))
        found = (hook for owner in owners for hook in self._hooks.get((code, id(owner)), ()))
        return [(record, skip) for record, skip in found if record.kind != TENSOR[0]]

    def _of_node(self, code: int) -> list[tuple[HookRecord, int]]:
        """Return the tensor hooks that belong to the node of the graph that runs."""
        node = private.current_node()
        if node is None:
            return []
        leaf = private.accumulated_into(node)
        found = self._hooks.get((code, private.node_key(node) if leaf is None else id(leaf)), ())
        return [(record, skip) for record, skip in found if record.kind == TENSOR[0]]


def _chosen(found: list[tuple[HookRecord, int]], count: int) -> tuple[HookRecord, int]:
    """Choose among several hooks of the same function on the same object.

    PyTorch passes two arguments to a pre-hook of the backward pass, and three to the others. Nodes of several threads
    may have the same key. Otherwise, the hook that is registered and has fired least is the next to fire.
    """
    if len(found) == 1:
        return found[0]
    fitting = [
        one for one in found if one[0].kind not in BACKWARD or (count - one[1] == 2) == (one[0].kind == BACKWARD[0])
    ]
    thread = threading.get_ident()
    return min(fitting or found, key=lambda one: (not one[0].alive, one[0].thread != thread, one[0].fired))


def _owner_key(record: HookRecord) -> Any:
    """Return what identifies the owner of a hook when the hook is called."""
    return record.owner.id if record.owner.node is None else record.owner.node


def tracer(args: tuple[Any, ...]) -> str | None:
    """Return what traces the call, such as `torch.jit`, or None. A trace computes nothing for the program."""
    if torch.compiler.is_exporting():
        return "torch.export"
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return "torch.jit"
    values = (value for one in args for value in (one if isinstance(one, tuple | list) else (one,)))
    return "torch.fx" if any(isinstance(value, torch.fx.Proxy) for value in values) else None


def is_called_by_jit(frame: FrameType) -> bool:
    """Return True if `torch.jit.trace` runs the model, for example to check the trace."""
    step: FrameType | None = frame
    while step is not None:
        if step.f_code.co_filename == _JIT:
            return True
        step = step.f_back
    return False
