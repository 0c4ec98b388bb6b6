"""Graphs: what torch.compile has made of a model, and which of it a change of hooks makes void."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torch import nn

from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.resolution import ResolvedHook
from tenterhook.resolve.targets import targets_of
from tenterhook.rig.compiled.graph_ops import KINDS
from tenterhook.torch_internals import compiler as dynamo


@dataclass(frozen=True, slots=True)
class Graphs:
    """What a rig has to do with compiled code."""

    #: made void by a change of its hooks; each is compiled again when it is next called
    dropped: int
    #: compiled with callbacks for its hooks, as it is now
    compiled: int

    def __bool__(self) -> bool:
        return bool(self.dropped or self.compiled)

    def __str__(self) -> str:
        dropped = f", {self.dropped} dropped for its changes" if self.dropped else ""
        return f"{self.compiled} compiled with doors{dropped}"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a hook would cost in compiled code. A callback never breaks a graph, nor has it compiled again."""

    #: modules that compiled code calls
    callbacks: int
    #: graphs that were compiled without it
    dropped: int
    #: each time, what passes is copied
    copies: bool
    #: of compiled modules of one class: how many have it, and how many there are
    among: tuple[int, int]

    def __bool__(self) -> bool:
        return bool(self.callbacks or self.dropped)


def cost(resolved: ResolvedHook, view: ModelView) -> Cost:
    """Return what a hook would cost in compiled code."""
    hook, names = resolved.hook, view.targets
    modules = [(t, m) for t in resolved.targets if isinstance(m := t.owner(), nn.Module) and t.kind == "module"]
    if hook.point.side == "state":
        modules = []
    inside = [target for target, _ in modules if names.in_graph(target)]
    having = {name for target in inside for name in names.compiled_around(target)}
    classes = {name: type(names.modules[name].owner()) for name in names.compiled}
    alike = [name for name, kind in classes.items() if kind in {classes[other] for other in having}]
    return Cost(
        callbacks=len(inside),
        dropped=_void(module for _, module in modules),
        copies=bool(inside) and (hook.at == "grad_output" or resolved.definition.modifies),
        among=(len(having), len(alike)),
    )


#: whose hooks compiled code must not miss, by id
_watched: dict[int, weakref.finalize[Any, Any]] = {}
#: whether it looked for new hooks before anyone asked
_looked = False


def watch(whose: object) -> bool:
    """Have code that is compiled from now on look for hooks that come later: PyTorch leaves that out to save time.
    False as long as nothing can be compiled."""
    global _looked
    if not dynamo.may_compile():
        return False
    before = dynamo.checks_hooks(True)
    _looked = _looked if _watched else before
    _watched[id(whose)] = weakref.finalize(whose, _left, id(whose))
    _watched[id(whose)].atexit = False
    return True


def unwatch(whose: object) -> None:
    if id(whose) in _watched:
        _watched[id(whose)]()


def _left(whose: int) -> None:
    del _watched[whose]
    if not _watched:
        dynamo.checks_hooks(_looked)


def drop(modules: Iterable[nn.Module]) -> int:
    """Have every graph compiled again that runs a module of one of these classes; how many there were."""
    found = _graphs_with({id(type(module)) for module in modules})
    for code in found:
        dynamo.drop_graphs(code)
    return sum(map(len, found.values()))


def is_compiled(model: nn.Module) -> bool:
    """Whether it was compiled, or a part of it, or compiled code runs modules like its own."""
    return bool(targets_of(model, {}).compiled or _void(model.modules()))


def in_graphs(module: nn.Module) -> bool:
    """Whether a graph that was looked at, perhaps one that was dropped since, runs modules of its class."""
    return id(type(module)) in _met


def _void(modules: Iterable[nn.Module]) -> int:
    """How many graphs `drop` would drop."""
    return sum(map(len, _graphs_with({id(type(module)) for module in modules}).values()))


def count(modules: Iterable[nn.Module]) -> int:
    """Count the graphs with a callback in them that run a module of one of these classes."""
    found = _graphs_with({id(type(module)) for module in modules})
    callbacks = set(map(id, KINDS))
    return sum(not callbacks.isdisjoint(_named(code, graph)) for code, graphs in found.items() for graph in graphs)


def _graphs_with(kinds: set[int]) -> dict[CodeType, list[Any]]:
    if not kinds:
        return {}
    found = {code: dynamo.graphs_of(code) for code in dynamo.compiled_codes()}
    return {c: graphs for c, graphs in found.items() if any(not kinds.isdisjoint(_named(c, g)) for g in graphs)}


_known: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()
_met: set[int] = set()


def _named(code: CodeType, graph: Any) -> frozenset[int]:
    conditions = dynamo.conditions_of(graph)
    if conditions not in _known:
        _known[conditions] = dynamo.classes_in(code, conditions)
        _met.update(_known[conditions])
    return _known[conditions]
