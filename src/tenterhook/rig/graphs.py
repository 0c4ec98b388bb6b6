"""Graphs: what torch.compile has made of a model, and which of it a change of hooks makes void."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torch import nn

from tenterhook.rig import torch_private as private
from tenterhook.rig.doors import KINDS


@dataclass(frozen=True, slots=True)
class Graphs:
    """What a rig has to do with compiled code."""

    #: made void by a change of its hooks; each is compiled again when it is next called
    dropped: int
    #: compiled with doors for its hooks, as it is now
    compiled: int

    def __bool__(self) -> bool:
        return bool(self.dropped or self.compiled)

    def __str__(self) -> str:
        dropped = f", {self.dropped} dropped by changes" if self.dropped else ""
        return f"{self.compiled} {'graph' if self.compiled == 1 else 'graphs'} compiled with doors{dropped}"


#: whose hooks compiled code must not miss
_watched: weakref.WeakSet[object] = weakref.WeakSet()
#: whether it looked for new hooks before anyone asked
_looked = False


def watch(whose: object) -> bool:
    """Have code that is compiled from now on look for hooks that come later: PyTorch leaves that out to save time.
    False as long as nothing can be compiled."""
    global _looked
    if not private.may_compile():
        return False
    before = private.checks_hooks(True)
    _looked = _looked if _watched else before
    _watched.add(whose)
    return True


def unwatch(whose: object) -> None:
    if whose in _watched:
        _watched.discard(whose)
        if not _watched:
            private.checks_hooks(_looked)


def drop(modules: Iterable[nn.Module]) -> int:
    """Have every graph compiled again that runs a module of one of these classes; how many there were."""
    kinds = {id(type(module)) for module in modules}
    found = _graphs_with(kinds) if kinds else {}
    for code in found:
        private.drop_graphs(code)
    return sum(map(len, found.values()))


def count(modules: Iterable[nn.Module]) -> int:
    """Graphs with a door in them that run a module of one of these classes."""
    found = _graphs_with({id(type(module)) for module in modules})
    doors = set(map(id, KINDS))
    return sum(not doors.isdisjoint(_named(graph)) for graphs in found.values() for graph in graphs)


def _graphs_with(kinds: set[int]) -> dict[CodeType, list[Any]]:
    found = {code: private.graphs_of(code) for code in private.compiled_codes()}
    return {code: graphs for code, graphs in found.items() if any(not kinds.isdisjoint(_named(g)) for g in graphs)}


_known: dict[str, frozenset[int]] = {}


def _named(graph: Any) -> frozenset[int]:
    number = private.number_of(graph)
    if number not in _known:
        _known[number] = private.called_in(graph)
    return _known[number]
