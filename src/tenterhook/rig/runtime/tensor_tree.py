"""Finds and replaces tensors in the nested tuples, lists, dicts and dataclasses that modules take and return."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from tenterhook.torch_internals.compiler import shallow_copy

Visit = Callable[[Tensor], Tensor | None]


def map_leaves(tree: Any, visit: Visit) -> Any:
    """Return `tree` with each tensor replaced by the result of `visit`.

    `visit` returns None to keep a tensor. If every tensor is kept, the result is `tree` itself.
    """
    new = _mapped(tree, visit)
    return tree if new is None else new


def _mapped(tree: Any, visit: Visit) -> Any:
    """Return the replacement for `tree`, or None to keep it. The code is simple enough for torch.compile to trace."""
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
        rebuilt: Any = shallow_copy(tree)
        rebuilt[:] = items
        return rebuilt
    if isinstance(tree, Mapping):
        changed = _changed(tree.items(), visit)
        if not changed:
            return None
        if isinstance(tree, MappingProxyType):
            return MappingProxyType({**tree, **dict(changed)})
        rebuilt = dict(tree) if type(tree) is dict else shallow_copy(tree)
        for key, value in changed:
            rebuilt[key] = value
        return rebuilt
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [(f.name, getattr(tree, f.name)) for f in dataclasses.fields(tree) if hasattr(tree, f.name)]
        changed = _changed(fields, visit)
        if not changed:
            return None
        rebuilt = shallow_copy(tree)
        for key, value in changed:
            object.__setattr__(rebuilt, key, value)
        return rebuilt
    return None


def _changed(items: Any, visit: Visit) -> list[tuple[Any, Any]]:
    found = [(key, _mapped(value, visit)) for key, value in items]
    return [(key, new) for key, new in found if new is not None]


def leaves(tree: Any) -> list[Tensor]:
    """Return all tensors in a tree, in order."""
    found: list[Tensor] = []
    map_leaves(tree, found.append)
    return found


def hidden_in(tree: Any, *, depth: int = 4) -> str | None:
    """Return the class of an object in a tree that holds tensors in its attributes, or None.

    `map_leaves` does not look into such an object, because it cannot know how to replace a tensor in it.
    """
    if depth == 0 or tree is None or isinstance(tree, Tensor | str | bytes | int | float | type | nn.Module):
        return None
    if isinstance(tree, tuple | list):
        inside = list(tree)
    elif isinstance(tree, Mapping):
        inside = list(tree.values())
    elif dataclasses.is_dataclass(tree):
        inside = list(vars(tree).values()) if hasattr(tree, "__dict__") else []
    elif hasattr(tree, "__dict__"):
        attributes = list(vars(tree).values())
        found = leaves(attributes) or any(hidden_in(one, depth=depth - 1) for one in attributes)
        return type(tree).__name__ if found else None
    else:
        return None
    return next((name for one in inside if (name := hidden_in(one, depth=depth - 1)) is not None), None)
