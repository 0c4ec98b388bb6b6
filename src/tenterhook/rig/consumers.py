"""`grad_input` for observers: a call's contribution to the gradient of its inputs, without touching the graph.

An alias of an input would do, but autograd then sums the call's uses apart from the others', and three terms summed
in another order are not the same bits. So the nodes of this call that use the input are found when it returns, and what
they send to it is added up beside the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge

from tenterhook.rig import torch_private as private
from tenterhook.rig.clock import Clock
from tenterhook.rig.fire import Fire
from tenterhook.rig.forward import is_grad_enabled
from tenterhook.rig.gradients import NO_GRAD, NOTHING_NEEDS_GRAD, GradientHooks, skipped
from tenterhook.rig.leaves import leaves, map_leaves
from tenterhook.rig.ledger import Site

Edge = tuple[Node, int]


class Contribution:
    """What one call sends to one of its inputs in one backward: the sum over the nodes that use it."""

    def __init__(self, fire: Fire, edge: Edge, uses: list[tuple[Node, int]]) -> None:
        self._fire = fire
        self._edge = edge
        self._nodes = 0
        self._task = -1
        self._expected = self._arrived = 0
        self._total: Tensor | None = None
        for node, index in uses:
            self._listen(node, index)

    def _listen(self, node: Node, index: int) -> None:
        start = 0

        def on_start(grad_outputs: Any) -> None:
            nonlocal start
            start = private.sequence_number()

        def on_gradients(grad_inputs: Sequence[Tensor | None], grad_outputs: Any) -> None:
            self._add(grad_inputs[index])
            if is_grad_enabled():  # create_graph: the node's own backward may have used the input as well
                made = [g for g in grad_inputs if g is not None]
                for later, place in uses_of({self._edge}, made, start)[self._edge]:
                    self._listen(later, place)

        self._nodes += 1
        node.register_prehook(on_start)
        node.register_hook(on_gradients)

    def _add(self, part: Tensor | None) -> None:
        task = private.graph_task_id()
        if task != self._task:
            self._task, self._expected, self._arrived, self._total = task, self._nodes, 0, None
            private.at_end_of_backward(self._finish)  # a backward of only a part of the graph leaves some nodes out
        self._arrived += 1
        if part is not None:
            self._total = part if self._total is None else self._total + part
        if self._arrived == self._expected:
            self._finish()

    def _finish(self) -> None:
        if self._arrived:
            total, self._total, self._arrived = self._total, None, 0
            self._fire(total)


def uses_of(edges: set[Edge], tensors: list[Tensor], start: int) -> dict[Edge, list[tuple[Node, int]]]:
    """Of the nodes that made these tensors since `start`: which send a gradient along an edge, and at which place."""
    uses: dict[Edge, list[tuple[Node, int]]] = {edge: [] for edge in edges}
    pending = [t.grad_fn for t in tensors if t.grad_fn is not None]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen or private.node_number(node) < start:
            continue
        seen.add(node)
        for index, (next_node, place) in enumerate(node.next_functions):
            if next_node is None:
                continue
            if (next_node, place) in uses:
                uses[next_node, place].append((node, index))
            else:
                pending.append(next_node)
    return uses


class Consumers:
    """The two hooks around a call: before it, where its inputs come from; after it, which of its nodes use them."""

    def __init__(self, sites: Sequence[Site], clock: Clock) -> None:
        self._sites = sites
        self._hooks = GradientHooks(sites, clock)

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if not is_grad_enabled():
            skipped(self._sites, NO_GRAD)
            return
        start = private.sequence_number()
        given = [t for t in (*leaves(args), *leaves(kwargs)) if t.requires_grad]
        if not given:
            skipped(self._sites, NOTHING_NEEDS_GRAD)
        for tensor in given:
            marks = tensor.__dict__.setdefault("_tenterhook_given", {})
            marks[id(self)] = (tuple(get_gradient_edge(tensor)[:2]), start)

    def after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        found: dict[int, tuple[Tensor, int, Edge, int]] = {}
        for leaf, tensor in enumerate((*leaves(args), *leaves(kwargs))):
            mark = tensor.__dict__.get("_tenterhook_given", {}).pop(id(self), None)
            if mark is not None and id(tensor) not in found:
                found[id(tensor)] = (tensor, leaf, *mark)
        if not found or not is_grad_enabled():
            return None
        call = self._hooks.begin()
        edges = {mark[2] for mark in found.values()}

        def visit(x: Tensor) -> Tensor | None:
            """An input that is passed on has no node of this call: a view of it gets one."""
            passed_on = x.requires_grad and tuple(get_gradient_edge(x)[:2]) in edges
            return x.view_as(x) if passed_on else None

        output = map_leaves(output, visit)
        uses = uses_of(edges, leaves(output), min(mark[3] for mark in found.values()))
        for tensor, leaf, edge, _ in found.values():
            if uses[edge]:
                Contribution(self._hooks.on(tensor, call, leaf), edge, uses[edge])
        return output
