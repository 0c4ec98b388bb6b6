"""Follow the variables that refer to the containers of a hook, to notice when they refer to other objects."""

from __future__ import annotations

import inspect
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tenterhook.doctor.reading.functions import held
from tenterhook.torch_internals.code_owner import is_users


@dataclass(slots=True)
class Variable:
    """A variable of the program that referred to a container when a hook with this container was registered."""

    #: what the source code calls the variable, such as `features` or `self.stats`
    text: str
    #: the id of the container
    container: int
    #: returns the variables of the same namespace, as long as it exists
    namespace: Callable[[], dict[str, Any] | None]
    key: str
    #: True if the variable referred to another object when the hook fired
    rebound: bool = False

    def look(self) -> None:
        """Look whether the variable refers to another container, and no other variable refers to the first one."""
        names = self.namespace()
        if names is None or self.rebound:
            return
        now = names.get(self.key)
        other = isinstance(now, list | dict | deque) and id(now) != self.container
        self.rebound = other and not any(id(value) == self.container for value in list(names.values()))


def variables_of(fn: Callable[..., Any], frame: FrameType | None) -> list[Variable]:
    """Return the variables that refer to containers in the closure, the defaults or the arguments of a function.

    A function reads its global variables each time it is called, so these are left out. `frame` is a call inside the
    function of the program that registers the hook.
    """
    kept = {id(value): value for _, value in held(fn) if isinstance(value, list | dict | deque)}
    while kept and frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return list(_variables(kept, frame)) if kept and frame is not None else []


def _variables(containers: dict[int, Any], frame: FrameType) -> Iterator[Variable]:
    names = frame.f_globals
    for name, value in list(names.items()):
        if id(value) in containers:
            yield Variable(name, id(value), lambda: names, name)
    owner = _local(frame, "self")
    own = getattr(owner, "__dict__", None)
    if not isinstance(own, dict):
        return
    try:
        ref = weakref.ref(owner)
    except TypeError:
        return
    for name, value in list(own.items()):
        if id(value) in containers:
            yield Variable(f"self.{name}", id(value), lambda: getattr(ref(), "__dict__", None), name)


def _local(frame: FrameType, name: str) -> Any:
    """Return the value of a local variable, or None."""
    names = frame.f_locals
    value = names.get(name)
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(names, dict):
        names.clear()  # a copy, which the frame keeps before Python 3.13, and with it the objects of the program
    return value
