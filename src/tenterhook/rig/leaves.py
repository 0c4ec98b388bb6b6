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
    if isinstance(tree, Tensor):
        new = visit(tree)
        return tree if new is None else new
    if tree is None or isinstance(tree, str | bytes | int | float):
        return tree
    if isinstance(tree, tuple | list):
        items = [map_leaves(item, visit) for item in tree]
        if all(a is b for a, b in zip(items, tree, strict=True)):
            return tree
        if isinstance(tree, tuple):
            return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
        rebuilt: Any = copy.copy(tree)
        rebuilt[:] = items
        return rebuilt
    if isinstance(tree, Mapping):
        changed = _changed(tree.items(), visit)
        if not changed:
            return tree
        rebuilt = copy.copy(tree)
        for key, value in changed:
            rebuilt[key] = value
        return rebuilt
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [(f.name, getattr(tree, f.name)) for f in dataclasses.fields(tree) if hasattr(tree, f.name)]
        changed = _changed(fields, visit)
        if not changed:
            return tree
        rebuilt = copy.copy(tree)
        for key, value in changed:
            object.__setattr__(rebuilt, key, value)
        return rebuilt
    return tree


def _changed(items: Any, visit: Visit) -> list[tuple[Any, Any]]:
    mapped = [(key, value, map_leaves(value, visit)) for key, value in items]
    return [(key, new) for key, old, new in mapped if new is not old]


def leaves(tree: Any) -> list[Tensor]:
    found: list[Tensor] = []
    map_leaves(tree, found.append)
    return found
