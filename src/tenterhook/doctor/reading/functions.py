"""Answer questions about a function object: the plain function inside it, what it refers to, and how it is called."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType
from typing import Any

from torch import Tensor


def bare(fn: Any) -> Any:
    """Return the plain function inside a partial, a method or a callable object."""
    while isinstance(fn, partial):
        fn = fn.func
    if inspect.ismethod(fn):
        return fn.__func__
    return fn if inspect.isfunction(fn) else getattr(type(fn), "__call__", fn)  # noqa: B004


def misfit(fn: Any, passed: int | None) -> str | None:
    """Return why a function cannot be called with so many arguments, or None if it can or this is not known."""
    if passed is None:
        return None
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*range(passed))
    except TypeError as error:
        return str(error)
    return None


def held(fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that a function refers to: its closure, its defaults and its bound arguments."""
    while isinstance(fn, partial):
        yield from ((f"argument {i}", value) for i, value in enumerate(fn.args))
        yield from fn.keywords.items()
        fn = fn.func
    if inspect.ismethod(fn):
        yield "self", fn.__self__
        fn = fn.__func__
    if not isinstance(fn, types.FunctionType):
        return
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    yield from zip(names[::-1], (fn.__defaults__ or ())[::-1])
    yield from (fn.__kwdefaults__ or {}).items()


def holder_of(fn: Callable[..., Any], tensor: Tensor) -> str | None:
    """Return the name by which a function refers to this tensor object, compared by identity."""
    for name, value in held(fn):
        if value is tensor or (isinstance(value, list | tuple) and any(one is tensor for one in value)):
            return name
    return None


def methods_of(fn: Any) -> tuple[CodeType, ...]:
    """Return the code of the methods that a method calls on its own object."""
    while isinstance(fn, partial):
        fn = fn.func
    if not inspect.ismethod(fn):
        return ()
    kind = type(fn.__self__)
    code = getattr(fn.__func__, "__code__", None)
    found = (getattr(kind, name, None) for name in code.co_names) if code is not None else ()
    return tuple(one.__code__ for one in found if inspect.isfunction(one))
