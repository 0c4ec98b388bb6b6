"""Record how the program uses the object of a hook: backward passes, their graphs, optimizers and calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tenterhook import torch_internals as private

#: the maximum number of graph nodes to visit when determining what a loss depends on
MOST_NODES = 200_000


@dataclass(slots=True)
class MissedBackward:
    """A backward pass in which a hook did not fire, and facts that may explain why."""

    #: how the program started the backward pass: `backward`, `backward(inputs=...)` or `autograd.grad`
    backward: str
    #: True if the hook's owner, or one of the owner's parameters, was in the graph
    inside: bool
    #: True if the owner still existed
    alive: bool = True
    frozen: bool = False
    replaced: bool = False
    #: True if FSDP2 or tensor parallelism replaced the parameter with a shard
    sharded: bool = False
    #: True if FSDP2 did not reduce gradients in this backward pass
    unsynced: bool = False
    #: True if parameters of the module were in the graph
    used: bool = False
    #: True if the forward pass ran before the hook was registered
    late: bool = False
    #: the class name of the hooked model, if another model of the same class ran instead
    other: str | None = None


@dataclass(slots=True)
class OptimizerUse:
    """The steps of one optimizer."""

    kind: str
    steps: int = 0
    #: the number of steps of all optimizers before the first and before the last step of this one
    first: int = -1
    last: int = -1
    #: for an optimizer with a scheduler: True if it took a step with a gradient
    with_gradients: bool = False
    #: the ids of the parameters that it steps
    parameters: frozenset[int] = frozenset()


@dataclass(slots=True)
class Calls:
    """The number of calls to one module, and facts that were observed in these calls."""

    count: int = 0
    without_grad: int = 0
    #: calls whose output does not require grad although gradients were enabled
    constant: int = 0
    #: the class name of an output in which PyTorch finds no tensors for backward hooks
    odd: str | None = None

    def note(self, out: Any) -> None:
        self.count += 1
        if not torch.is_grad_enabled():
            self.without_grad += 1
        elif not isinstance(out, Tensor) and not (
            isinstance(out, tuple) and all(not isinstance(o, dict | list | tuple) for o in out)
        ):
            self.odd = type(out).__name__
        else:
            shown = out if isinstance(out, tuple) else (out,)
            self.constant += not any(isinstance(one, Tensor) and one.requires_grad for one in shown)


@dataclass(slots=True)
class Graph:
    """The part of an autograd graph that was visited from the outputs of a backward pass."""

    nodes: set[Any]
    #: by leaf id: the sequence number of the last node that uses the leaf
    leaves: dict[int, int]
    #: the highest sequence number in the graph
    latest: int = -1
    #: False if the graph is too large to visit every node
    whole: bool = True


def walk(outputs: Iterable[Any]) -> Graph:
    """Visit the autograd graph of the tensors from which a backward pass starts."""
    waiting = [n for n in (getattr(o, "grad_fn", None) or getattr(o, "node", None) for o in outputs) if n is not None]
    graph = Graph(set(waiting), {})
    for output in outputs:
        if isinstance(output, Tensor) and output.is_leaf:
            graph.leaves[id(output)] = -1
    while waiting:
        node = waiting.pop()
        number = private.node_number(node)
        graph.latest = max(graph.latest, number)
        for child, _ in node.next_functions:
            if child is None:
                continue
            leaf = private.accumulated_into(child)
            if leaf is not None:
                graph.leaves[id(leaf)] = max(graph.leaves.get(id(leaf), -1), number)
            elif child not in graph.nodes:
                graph.nodes.add(child)
                waiting.append(child)
        if len(graph.nodes) > MOST_NODES:
            graph.whole = False
            break
    return graph


def is_mean(outputs: Iterable[Any]) -> bool:
    """Return True if a backward pass starts from a mean, perhaps of a sum of losses."""
    nodes = [node for node in (getattr(one, "grad_fn", None) for one in outputs) if node is not None]
    for _ in range(4):
        if any(map(private.is_mean, nodes)):
            return True
        nodes = [child for node in nodes for child, _ in node.next_functions if child is not None]
    return False


def parts_of(outputs: Iterable[Any]) -> int:
    """Return the whole number by which the program divided a loss just before its backward pass, or 1."""
    node = next((node for node in (getattr(one, "grad_fn", None) for one in outputs) if node is not None), None)
    for _ in range(2):
        number = private.divisor_of(node) if node is not None else None
        if number is not None and number > 1.5 and abs(number - round(number)) < 1e-6:
            return round(number)
        node = (
            next((child for child, _ in node.next_functions if child is not None), None) if node is not None else None
        )
    return 1


def has_constant_term(outputs: Iterable[Any]) -> bool:
    """Return True if a loss is the sum or the difference of a term with a graph and one without, as in `loss + 1`."""
    node = next((node for node in (getattr(one, "grad_fn", None) for one in outputs) if node is not None), None)
    while node is not None and private.divisor_of(node) is not None:
        node = next((child for child, _ in node.next_functions if child is not None), None)
    if node is None or not node.name().startswith(("AddBackward", "SubBackward")):
        return False
    return any(child is None for child, _ in node.next_functions)
