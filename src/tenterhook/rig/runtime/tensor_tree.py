"""Tensor leaves of what modules take and return: tuples, lists, dicts, dataclasses, nested."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

Visit = Callable[[Tensor], Tensor | None]


def map_leaves(tree: Any, visit: Visit) -> Any:
    """`tree` with each tensor replaced by what `visit` returns; the same object where nothing was."""
    new = _mapped(tree, visit)
    return tree if new is None else new


def _mapped(tree: Any, visit: Visit) -> Any:
    """What takes the place of `tree`, or None. Written so that a compiler can follow it."""
    if isinstance(tree, Tensor):
        return visit(tree)
    if tree is None or isinstance(tree, str | bytes | int | float):
        return None
    if isinstance(tree, tuple | list):
        found = [_mapped(item, visit) for item in tree]
        if all(new is None for new in found):
            return None
        items = [old if new is None else new for old, new in zip(tree, found, strict=True)]
        if isinstance(tree, tuple):
            return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
        if type(tree) is list:
            return items
        rebuilt: Any = copy.copy(tree)
        rebuilt[:] = items
        return rebuilt
    if isinstance(tree, Mapping):
        changed = _changed(tree.items(), visit)
        if not changed:
            return None
        rebuilt = dict(tree) if type(tree) is dict else copy.copy(tree)
        for key, value in changed:
            rebuilt[key] = value
        return rebuilt
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [(f.name, getattr(tree, f.name)) for f in dataclasses.fields(tree) if hasattr(tree, f.name)]
        changed = _changed(fields, visit)
        if not changed:
            return None
        rebuilt = copy.copy(tree)
        for key, value in changed:
            object.__setattr__(rebuilt, key, value)
        return rebuilt
    return None


def _changed(items: Any, visit: Visit) -> list[tuple[Any, Any]]:
    found = [(key, _mapped(value, visit)) for key, value in items]
    return [(key, new) for key, new in found if new is not None]


def leaves(tree: Any) -> list[Tensor]:
    found: list[Tensor] = []
    map_leaves(tree, found.append)
    return found
