"""Compare the variables that a hook reads when it fires with their values when the hook was registered.

A function that a loop makes reads the variables of the loop when it is called, not when it is made. When the hooks
fire, the loop has ended, and all of them read the last value.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from tenterhook.doctor.reading.functions import bare


@dataclass(slots=True)
class LateVariables:
    """The outer variables of a function, and those that had other values when it was called."""

    #: by name, the values when the hook was registered
    bound: dict[str, object] = field(default_factory=dict)
    #: by name, the other values when the hook fired
    changed: dict[str, object] = field(default_factory=dict)

    def look(self, fn: Callable[..., Any]) -> None:
        """Compare the variables now."""
        now = outer_values(fn) if self.bound else {}
        self.changed |= {name: now[name] for name, was in self.bound.items() if name in now and now[name] != was}


def outer_values(fn: Callable[..., Any]) -> dict[str, object]:
    """Return the outer variables of a function: texts and numbers as they are, modules and tensors as text and id."""
    return {name: _comparable(value) for name, value in _outer(bare(fn)) if _may_be_of_a_loop(value)}


def _outer(fn: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(fn, types.FunctionType):
        return
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # the variable has no value yet
    for name in fn.__code__.co_names:
        if name in fn.__globals__:
            yield name, fn.__globals__[name]


def _may_be_of_a_loop(value: object) -> bool:
    return isinstance(value, str | int | float | Tensor | nn.Module)


def _comparable(value: object) -> object:
    return (type(value).__name__, id(value)) if isinstance(value, Tensor | nn.Module) else value
