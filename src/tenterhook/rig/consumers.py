"""`grad_input` for observers: a call's contribution to the gradient of its inputs, without touching the graph.

An alias of an input would do, but autograd then sums the call's uses apart from the others', and three terms summed
in another order are not the same bits. So the nodes of this call that use the input are found when it returns, and what
they send to it is added up beside the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Given(NamedTuple):
    """An input as it was before the call."""

    edge: Edge
    #: number of the first node that the call could make
    start: int
    call: int | None
    version: int


def _edge(tensor: Tensor) -> Edge:
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


class Contribution:
    """What one call sends to one of its inputs in one backward: the sum over the nodes that use it."""

    def __init__(self, fire: Fire, edge: Edge, uses: list[tuple[Node, int]]) -> None:
        self._fire = fire
        self._edge = edge
        self._nodes = 0
        self._task = -1
        self._expected = self._arrived = 0
        self._total: Tensor | None = None
        self._waits = False
        for node, index in uses:
            self._listen(node, index)

    def wait_for(self, tensor: Tensor) -> None:
        """Fire when the input's gradient is complete, after this call's parameters had theirs; a leaf's at the end."""
        self._waits = True
        if tensor.grad_fn is None:
            return
        handle = tensor.register_hook(lambda grad: self._finish())
        hooks = private.tensor_hooks(tensor, "_backward_hooks")
        if hooks is not None and not private.is_only(hooks):  # before the module that made it sees its own gradient
            private.put_in_order(hooks, [handle.id, *(key for key in hooks if key != handle.id)])

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
        if self._arrived == self._expected and not self._waits:
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
        call = self._hooks.begin()
        if not is_grad_enabled():
            skipped(self._sites, NO_GRAD)
            return
        start = private.sequence_number()
        given = [t for t in (*leaves(args), *leaves(kwargs)) if t.requires_grad]
        if not given:
            skipped(self._sites, NOTHING_NEEDS_GRAD)
        for tensor in given:
            marks = tensor.__dict__.setdefault("_tenterhook_given", {})
            marks[id(self)] = Given(_edge(tensor), start, call, tensor._version)

    def after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        found: list[tuple[Tensor, int, Given]] = []
        for leaf, tensor in enumerate((*leaves(args), *leaves(kwargs))):
            given = tensor.__dict__.get("_tenterhook_given", {}).pop(id(self), None)
            if given is not None:
                found.append((tensor, leaf, given))
        if not found or not is_grad_enabled():
            return None
        edges = {given.edge for _, _, given in found}

        def visit(x: Tensor) -> Tensor | None:
            """An input that is passed on has no node of this call: a view of it gets one."""
            passed_on = x.requires_grad and _edge(x) in edges
            return x.view_as(x) if passed_on else None

        output = map_leaves(output, visit)
        uses = uses_of(edges, leaves(output), found[0][2].start)
        for tensor, leaf, given in found:
            if uses[given.edge]:
                one = Contribution(self._hooks.on(tensor, given.call, leaf), given.edge, uses[given.edge])
                if tensor._version == given.version:
                    one.wait_for(tensor)
        return output
