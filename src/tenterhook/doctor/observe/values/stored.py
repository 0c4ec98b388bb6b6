"""Find the values that a hook stores when it is called, and under which name it stores them.

A hook stores values in containers that it can reach: in its closure, its global variables, its default arguments, its
object, and the attributes of these. The containers are compared before and after a call.
"""

from __future__ import annotations

import math
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tenterhook import torch_internals as private
from tenterhook.torch_internals.code_owner import is_users

#: the maximum number of containers to compare, and of entries in a dict to compare
MOST = 64
#: the maximum number of values to remember for each hook
VALUES = 64

_PLAIN = (type(None), bool, int, float, complex, str, bytes, types.ModuleType, type, torch.dtype, torch.device)


class Slot(NamedTuple):
    """The place at which a value was stored."""

    #: the id of the container
    container: int
    #: what the source code calls the container, such as `features` or `self.kept`
    name: str
    #: the key in a dict or the name of an attribute; None for a list
    key: Any
    #: True if the value is an attribute of an object
    attribute: bool = False
    #: for a list inside another container, the number of lists in that container
    siblings: int = 0
    #: the length of a list after the value was stored
    length: int = 0


class Pass(NamedTuple):
    """An outermost call of a model, such as its forward pass or `generate`, or a backward pass (negative number)."""

    number: int
    name: str
    #: returns the model as long as it exists
    model: Callable[[], Any] = lambda: None
    #: True if the batch that the model received has two equal halves
    doubled: bool = False


@dataclass(slots=True)
class Stored:
    """A value that a hook stored in one call."""

    slot: Slot
    #: the class of the value
    kind: str
    #: the tensor itself, if it shares the memory of a tensor that PyTorch passed to the hook
    tensor: weakref.ref[Tensor] | None
    #: the version of the tensor when it was stored
    version: int | None
    #: True if the hooked module was in training mode
    training: bool
    #: True if the value is a tensor with a graph
    graph: bool
    #: True if gradients were enabled
    grad_enabled: bool
    #: the pass of the model in which the value was stored, or None if the model itself was not called
    within: Pass | None
    #: why the tensor cannot be used everywhere: `torch.func` or `inference_mode`; None for an ordinary value
    bound_to: str | None = None
    #: True for a number that is not finite
    infinite: bool = False
    #: True if the key is the value of a variable outside the function, which may have changed since the registration
    late_key: bool = False
    #: True if the key is the id of a tensor that PyTorch passed to the hook
    by_id: bool = False
    #: the name of the thread in which the value was stored; PyTorch has other threads for the backward pass
    thread: str = field(default_factory=lambda: threading.current_thread().name)
    #: the number of backward passes before the value was stored
    backwards: int = 0
    #: True if the tensor was changed in place later
    overwritten: bool = False

    @property
    def shared(self) -> bool:
        """Return True if the value is a tensor that PyTorch passed to the hook."""
        return self.tensor is not None

    def look(self) -> None:
        """Look whether the tensor has been changed since it was stored."""
        tensor = self.tensor() if self.tensor is not None else None
        if tensor is not None and self.version is not None:
            self.overwritten |= private.version(tensor) != self.version


def reachable(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each object in which a function may store a value."""
    while isinstance(fn, partial):
        yield from (("an argument of the partial", one) for one in (*fn.args, *fn.keywords.values()))
        fn = fn.func
    if isinstance(fn, types.MethodType):
        yield "self", fn.__self__
        fn = fn.__func__
    elif not isinstance(fn, types.FunctionType):
        yield "self", fn
        fn = next((vars(one)["__call__"] for one in type(fn).__mro__ if "__call__" in vars(one)), None)
    if not isinstance(fn, types.FunctionType):
        return
    code = fn.__code__
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # the variable has no value yet
    for name in code.co_names:
        if name in fn.__globals__:
            yield name, fn.__globals__[name]
    defaults = fn.__defaults__ or ()
    for name, value in zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults):
        yield name, value


def shown(key: object) -> str:
    """Return the key of a dict as a program may write it."""
    if isinstance(key, Tensor | nn.Module):
        return "parameter" if isinstance(key, nn.Parameter) else "tensor" if isinstance(key, Tensor) else "module"
    return repr(key)


class Container(NamedTuple):
    """A list, a dict or the namespace of an object in which a function may store a value."""

    #: what the source code calls the container
    name: str
    value: Any
    #: True if it is the namespace of an object
    attribute: bool = False
    #: for a container inside another one, the number of containers in that one
    siblings: int = 0


def containers(fn: Any, module: Any = None) -> list[Container]:
    """Return the containers in which a hook may store a value. It may be an attribute of the hooked module."""
    found: dict[int, Container] = {}

    def add(name: str, value: Any) -> None:
        found[id(value)] = Container(name, value)
        items = list(value.items() if isinstance(value, dict) else enumerate(value))[:MOST]
        inner = [(key, one) for key, one in items if isinstance(one, dict | list | deque)]
        for key, one in inner:
            found[id(one)] = Container(f"{name}[{shown(key)}]", one, siblings=len(inner))

    for name, value in (*reachable(fn), *((("module", module),) if isinstance(module, nn.Module) else ())):
        if isinstance(value, dict | list | deque):
            add(name, value)
        elif not isinstance(value, (*_PLAIN, Tensor, types.FunctionType, types.BuiltinFunctionType)):
            inside = getattr(value, "__dict__", None)
            if isinstance(inside, dict) and (isinstance(value, nn.Module) or _is_of_the_program(value)):
                found[id(inside)] = Container(name, inside, attribute=True)
                for key, one in list(inside.items()):
                    if isinstance(one, dict | list | deque) and not key.startswith("_"):
                        add(f"{name}.{key}", one)
        if len(found) >= MOST:
            break
    return list(found.values())


def _is_of_the_program(value: Any) -> bool:
    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None)
    return file is None or is_users(file)


#: a container, and what it contained
Contents = tuple[Container, Any]


def snapshot(fn: Any, module: Any = None) -> list[Contents]:
    """Return the containers of a function, or of the module that a hook is on, with their present contents."""
    found = []
    for container in containers(fn, module):
        one = container.value
        contents: Any = len(one)
        if isinstance(one, dict):
            contents = {key: _state(value) for key, value in one.items()} if len(one) <= MOST else None
        found.append((container, contents))
    return found


def _state(value: Any) -> tuple[int, int | None]:
    half = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return id(value), private.version(value) if half else None


def changes(before: list[Contents]) -> Iterator[tuple[Slot, Any]]:
    """Yield the values that were stored since the snapshot."""
    for (name, one, attribute, siblings), contents in before:
        if isinstance(one, dict):
            for key, value in list(one.items()) if contents is not None else ():
                if contents.get(key, (None,))[0] != id(value):
                    yield Slot(id(one), name, key, attribute), value
        else:
            for value in list(one)[contents:]:
                yield Slot(id(one), name, None, siblings=siblings, length=len(one)), value


def stored_since(
    before: list[Contents], args: tuple[Any, ...], *, training: bool, within: Pass | None
) -> Iterator[Stored]:
    """Yield the values that a hook with these arguments has stored since the snapshot."""
    given = {id(one) for one in tensors(args)}
    memory = memory_of(args)
    for slot, value in changes(before):
        for one in value if isinstance(value, tuple) and any(isinstance(v, Tensor) for v in value) else (value,):
            shared = isinstance(one, Tensor) and (id(one) in given or _memory(one) in memory)
            tensor = one if shared else None
            yield Stored(
                slot,
                kind=type(one).__name__,
                tensor=weakref.ref(tensor) if tensor is not None else None,
                version=private.version(tensor) if tensor is not None else None,
                training=training,
                graph=isinstance(one, Tensor) and one.grad_fn is not None,
                grad_enabled=torch.is_grad_enabled(),
                within=within,
                bound_to=_bound_to(one) if isinstance(one, Tensor) else None,
                infinite=_infinite(one),
                by_id=not slot.attribute and isinstance(slot.key, int) and slot.key in given,
            )


def _infinite(value: Any) -> bool:
    """Return True for a number, or a tensor with one number, that is not finite."""
    if isinstance(value, Tensor):
        usable = value.numel() == 1 and value.is_floating_point() and not private.is_functorch(value)
        return usable and value.device.type != "meta" and not bool(value.isfinite())
    return isinstance(value, float) and not math.isfinite(value)


def memory_of(values: Any) -> set[int]:
    """Return the addresses of the memory of the tensors in nested tuples, lists and dicts."""
    return {address for one in tensors((values,)) if (address := _memory(one)) is not None}


def _memory(tensor: Tensor) -> int | None:
    """Return the address of the memory of a tensor, or None if it has none."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return None
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (NotImplementedError, RuntimeError):
        return None


def _bound_to(tensor: Tensor) -> str | None:
    if private.is_functorch(tensor):
        return "torch.func"
    return "inference_mode" if tensor.is_inference() else None


def summed_in_half(before: list[Contents]) -> str | None:
    """Return the 16-bit type of a tensor in the containers that was changed in place since the snapshot, or None."""
    for (_, one, _, _), contents in before:
        if isinstance(one, dict) and contents is not None:
            for key, value in list(one.items()):
                half = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
                if half and contents.get(key) not in (None, (id(value), private.version(value))):
                    return str(value.dtype).removeprefix("torch.")
    return None


def tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists and dicts."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from tensors(value)
        elif isinstance(value, dict):
            yield from tensors(value.values())


def weak(fn: Any) -> Callable[[], Any]:
    """Return a function that returns `fn` as long as it exists."""
    try:
        return weakref.WeakMethod(fn) if isinstance(fn, types.MethodType) else weakref.ref(fn)
    except TypeError:
        return lambda: None
