"""Find out whether a loss uses the part of an output that a forward hook changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tenterhook import torch_internals as private

#: identifies a node of the graph, also after the node has been freed
Node = tuple[int, str]


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """The nodes of the values that a forward hook replaced in an output of several tensors, and of the others."""

    #: records whether a backward pass used the changed part
    note: Callable[[bool], None]
    changed: frozenset[Node]
    others: frozenset[Node]

    def compare(self, nodes: set[Node]) -> None:
        """Record whether a graph with these nodes uses the changed part. Do nothing if it does not use the output."""
        if self.changed & nodes or self.others & nodes:
            self.note(bool(self.changed & nodes))


def changed_part(note: Callable[[bool], None], output: Any, returned: Any) -> Iterator[ChangedPart]:
    """Yield the part of an output that a hook changed, if the output has other tensors with a graph."""
    before = {id(one) for one in _leaves((output,))}
    made = [one for one in _leaves((returned,)) if one.grad_fn is not None]
    changed = frozenset(_node(one.grad_fn) for one in made if id(one) not in before)
    others = frozenset(_node(one.grad_fn) for one in made if id(one) in before) - changed
    if changed and others:
        yield ChangedPart(note, changed, others)


def nodes_of(graph: Iterable[Any]) -> set[Node]:
    """Return what identifies the nodes of a graph."""
    return set(map(_node, graph))


def _node(node: Any) -> Node:
    return private.node_number(node), node.name()


def _leaves(values: Any) -> Iterator[Tensor]:
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list | dict):
            yield from _leaves(value)
