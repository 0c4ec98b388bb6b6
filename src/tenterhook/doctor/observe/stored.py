"""Find the values that a hook stores when it is called, and under which name it stores them.

A hook stores values in containers that it can reach: in its closure, its global variables, its default arguments, its
object, and the attributes of these. The containers are compared before and after a call.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


class Pass(NamedTuple):
    """An outermost call of a model, such as its forward pass or `generate`."""

    number: int
    name: str


@dataclass(slots=True)
class Stored:
    """A value that a hook stored in one call."""

    slot: Slot
    #: the class of the value
    kind: str
    #: the tensor itself, if the value is a tensor that PyTorch passed to the hook rather than a copy
    tensor: weakref.ref[Tensor] | None
    #: the version of the tensor when it was stored
    version: int
    #: True if the hooked module was in training mode
    training: bool
    #: True if the value is a tensor with a graph
    graph: bool
    #: the pass of the model in which the value was stored, or None if the model itself was not called
    within: Pass | None
    #: True if the tensor was changed in place later
    overwritten: bool = False

    def look(self) -> None:
        """Look whether the tensor has been changed since it was stored."""
        tensor = self.tensor() if self.tensor is not None else None
        self.overwritten |= tensor is not None and private.version(tensor) != self.version


#: the name of a container, the container, what it contained, and True if it is the namespace of an object
Contents = tuple[str, Any, Any, bool]


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


def containers(fn: Any) -> list[tuple[str, Any, bool]]:
    """Return the lists, dicts and namespaces in which a function may store a value.

    Each is given with its name, and with True if it is the namespace of an object.
    """
    found: dict[int, tuple[str, Any, bool]] = {}
    for name, value in reachable(fn):
        if isinstance(value, dict | list | deque):
            found[id(value)] = name, value, False
            for key, inner in list(value.items())[:MOST] if isinstance(value, dict) else ():
                if isinstance(inner, dict | list | deque):
                    found[id(inner)] = f"{name}[{key!r}]", inner, False
        elif not isinstance(value, (*_PLAIN, Tensor, types.FunctionType, types.BuiltinFunctionType)):
            inside = getattr(value, "__dict__", None)
            if isinstance(inside, dict) and (isinstance(value, nn.Module) or _is_of_the_program(value)):
                found[id(inside)] = name, inside, True
                for key, inner in inside.items():
                    if isinstance(inner, dict | list | deque) and not key.startswith("_"):
                        found[id(inner)] = f"{name}.{key}", inner, False
        if len(found) >= MOST:
            break
    return list(found.values())


def _is_of_the_program(value: Any) -> bool:
    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None)
    return file is None or is_users(file)


def snapshot(fn: Any) -> list[Contents]:
    """Return the containers of a function with their present contents."""
    found = []
    for name, one, attribute in containers(fn):
        contents: Any = len(one)
        if isinstance(one, dict):
            contents = {key: id(value) for key, value in one.items()} if len(one) <= MOST else None
        found.append((name, one, contents, attribute))
    return found


def changes(before: list[Contents]) -> Iterator[tuple[Slot, Any]]:
    """Yield the values that were stored since the snapshot."""
    for name, one, contents, attribute in before:
        if isinstance(one, dict):
            for key, value in list(one.items()) if contents is not None else ():
                if contents.get(key) != id(value):
                    yield Slot(id(one), name, key, attribute), value
        else:
            for value in list(one)[contents:]:
                yield Slot(id(one), name, None), value


def stored_since(
    before: list[Contents], args: tuple[Any, ...], *, training: bool, within: Pass | None
) -> Iterator[Stored]:
    """Yield the values that a hook with these arguments has stored since the snapshot."""
    given = {id(one) for one in tensors(args)}
    for slot, value in changes(before):
        for one in value if isinstance(value, tuple) and any(isinstance(v, Tensor) for v in value) else (value,):
            tensor = one if isinstance(one, Tensor) and id(one) in given else None
            version = private.version(tensor) if tensor is not None else None
            ref = weakref.ref(tensor) if tensor is not None else None
            graph = isinstance(one, Tensor) and one.grad_fn is not None
            yield Stored(slot, type(one).__name__, ref, version or 0, training, graph, within)


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
