"""Finds the graphs that torch.compile has made for a model, and drops those that no longer match the hooks."""

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
    """Counts the compiled graphs that a rig affects."""

    #: number of graphs that were dropped because hooks changed; each is compiled again at its next call
    dropped: int
    #: number of graphs that currently contain graph callbacks
    compiled: int

    def __bool__(self) -> bool:
        return bool(self.dropped or self.compiled)

    def __str__(self) -> str:
        dropped = f", {self.dropped} dropped because hooks changed" if self.dropped else ""
        return f"{self.compiled} compiled with graph callbacks{dropped}"


@dataclass(frozen=True, slots=True)
class Cost:
    """Describes the cost of a hook in compiled code.

    A graph callback never causes a graph break, and firing it never causes a recompilation.
    """

    #: number of targets that compiled code calls, each through its own graph callback
    callbacks: int
    #: number of graphs that were compiled without the hook and must be compiled again
    dropped: int
    #: True if the tensor is copied at every call
    copies: bool
    #: number of compiled modules that contain a target, and number of compiled modules of the same classes as these
    among: tuple[int, int]

    def __bool__(self) -> bool:
        return bool(self.callbacks or self.dropped)


def cost(resolved: ResolvedHook, view: ModelView) -> Cost:
    """Return the cost of a hook in compiled code."""
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


#: finalizers of the objects that were passed to `watch`, by id
_watched: dict[int, weakref.finalize[Any, Any]] = {}
#: True if the check for new hooks was already enabled before the first `watch`
_looked = False


def watch(whose: object) -> bool:
    """Make all code that is compiled from now on check for hooks that are added later.

    By default, PyTorch skips this check to save time. Return False if the compiler is not loaded yet, or not supported.
    """
    global _looked
    if not (dynamo.may_compile() and dynamo.tracks_graphs()):
        return False
    before = dynamo.checks_hooks(True)
    _looked = _looked if _watched else before
    _watched[id(whose)] = weakref.finalize(whose, _left, id(whose))
    _watched[id(whose)].atexit = False
    return True


def unwatch(whose: object) -> None:
    """Undo `watch`. When no watched object remains, the previous setting is restored."""
    if id(whose) in _watched:
        _watched[id(whose)]()


def _left(whose: int) -> None:
    del _watched[whose]
    if not _watched:
        dynamo.checks_hooks(_looked)


def drop(modules: Iterable[nn.Module]) -> int:
    """Drop every graph that runs a module of the same class as one of `modules`.

    Return the number of dropped graphs. PyTorch compiles a dropped graph again at its next call.
    """
    found = _graphs_with({id(type(module)) for module in modules})
    for code in found:
        dynamo.drop_graphs(code)
    return sum(map(len, found.values()))


def is_compiled(model: nn.Module) -> bool:
    """Return True if the model or a part of it was compiled, or if compiled code runs modules of the same classes."""
    return bool(targets_of(model, {}).compiled or _void(model.modules()))


def in_graphs(module: nn.Module) -> bool:
    """Return True if a graph inspected earlier ran a module of this class, even if the graph has since been dropped."""
    return id(type(module)) in _met


def _void(modules: Iterable[nn.Module]) -> int:
    """Return the number of graphs that `drop` would drop."""
    return sum(map(len, _graphs_with({id(type(module)) for module in modules}).values()))


def count(modules: Iterable[nn.Module]) -> int:
    """Count the graphs that contain a graph callback and run a module of the same class as one of `modules`."""
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
