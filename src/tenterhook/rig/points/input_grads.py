"""Implements the point `grad_input`: the contribution of a call to the gradients of its inputs.

For a modifier, a tensor hook is registered on an alias of each input. An observer must not use aliases, because
autograd would then sum the contribution of this call separately. Adding floats in a different order can change the last
bits of the sum. Instead, `uses_of` finds the call's autograd nodes that use an input. Hooks on these nodes sum the
gradients that the nodes send to the input. If the call returns an input unchanged, a view of the input is returned
instead, because returning the same tensor does not create an autograd node.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge
from torch.utils.hooks import RemovableHandle

from tenterhook import torch_internals as private
from tenterhook.resolve.targets import Target
from tenterhook.rig.points.calling import Fire
from tenterhook.rig.points.gradient_hooks import NO_GRAD, NOTHING_NEEDS_GRAD, GradientHooks, skip_call
from tenterhook.rig.points.leaf_dispatcher import is_grad_enabled
from tenterhook.rig.points.module_registration import ModuleRegistration
from tenterhook.rig.runtime.attached_hook import Site
from tenterhook.rig.runtime.registration import REMOVED, Dispatch, Touched
from tenterhook.rig.runtime.step_clock import StepClock
from tenterhook.rig.runtime.tensor_tree import leaves, map_leaves
from tenterhook.torch_internals import compiler as dynamo

NOT_USED = "no output of this call was computed from this input"
Edge = tuple[Node, int]
#: a node, and the index of the edge in its `next_functions`
Use = tuple[Node, int]


class Given(NamedTuple):
    """Describes an input as it was before the call."""

    tensor: Tensor
    leaf: int
    edge: Edge
    version: int


class Call(NamedTuple):
    """Describes a call that is running."""

    number: int | None
    #: smallest sequence number that a node of this call can have
    start: int
    inputs: list[Given]


class Contribution:
    """Sums the gradients that the nodes of one call send to one of its inputs, separately for each backward pass."""

    def __init__(self, fire: Fire, edge: Edge, uses: list[Use], sites: Sequence[Site]) -> None:
        self._fire = fire
        self._edge = edge
        self._sites = sites
        self._nodes = 0
        #: number of remaining nodes and the sum so far, by graph task id; one backward pass may run inside another
        self._running: dict[int, tuple[int, Tensor | None]] = {}
        self._waits = False
        for node, index in uses:
            self._listen(node, index)

    def wait_for(self, tensor: Tensor) -> None:
        """Delay firing until the input's gradient is complete and the call's parameters have received their gradients.

        If the input is a leaf tensor, fire at the end of the backward pass.
        """
        self._waits = True
        if tensor.grad_fn is None:
            return
        hooks = private.tensor_hooks(tensor, "_backward_hooks")
        first = next(iter(hooks.values()), None) if hooks else None
        if not isinstance(first, Waiting):
            first = Waiting()
            handle = tensor.register_hook(first)
            hooks = private.tensor_hooks(tensor, "_backward_hooks")
            # Fire before the hooks of the module that created the input.
            if hooks is not None and not private.is_only(hooks):
                private.put_in_order(hooks, [handle.id, *(key for key in hooks if key != handle.id)])
        first.contributions.append(weakref.ref(self))

    def _listen(self, node: Node, index: int) -> None:
        start = 0

        def on_start(grad_outputs: Any) -> None:
            nonlocal start
            start = private.sequence_number()

        def on_gradients(grad_inputs: Sequence[Tensor | None], grad_outputs: Any) -> None:
            self._add(grad_inputs[index])
            if is_grad_enabled():  # with create_graph=True, the node's backward function may use the input too
                made = [g for g in grad_inputs if g is not None]
                for later, place in uses_of({self._edge}, made, start)[self._edge]:
                    self._listen(later, place)

        self._nodes += 1
        node.register_prehook(on_start)
        node.register_hook(on_gradients)

    def _add(self, part: Tensor | None) -> None:
        task = private.graph_task_id()
        if task not in self._running:
            self._running[task] = (self._nodes, None)
            # A backward pass over only part of the graph may skip some nodes.
            private.at_end_of_backward(lambda: self.finish(task))
        missing, total = self._running[task]
        try:
            total = part if total is None else total if part is None else _sum(total, part)
        except Exception as error:
            for site in self._sites:
                site.attached.fail(site, error)
        self._running[task] = (missing - 1, total)
        if missing == 1 and not self._waits:
            self.finish(task)

    def finish(self, task: int) -> None:
        """Fire the hooks with the sum for one backward pass, unless they have already fired for that pass."""
        if task in self._running:
            _, total = self._running.pop(task)
            self._fire(total)


def _sum(total: Tensor, part: Tensor) -> Tensor:
    return part + total if total.is_sparse and not part.is_sparse else total + part


class Waiting:
    """Finishes the contributions of all calls that take the same input. Registered as a tensor hook on that input.

    Contains only weak references to the contributions, because the autograd nodes keep the contributions alive.
    """

    def __init__(self) -> None:
        self.contributions: list[weakref.ref[Contribution]] = []

    def __call__(self, grad: Tensor | None) -> None:
        task = private.graph_task_id()
        for ref in self.contributions:
            one = ref()
            if one is not None:
                one.finish(task)


class Consumers:
    """Observes the gradients of a call's inputs, with one hook before and one hook after the call.

    The first hook records the inputs. The second hook finds the nodes that use the inputs.
    """

    def __init__(self, sites: Sequence[Site], clock: StepClock) -> None:
        self._sites = sites
        self._hooks = GradientHooks(sites, clock)
        self._calls = threading.local()

    @dynamo.breaks_graph
    def before(self, module: nn.Module, args: Any, kwargs: Any = REMOVED) -> None:
        if kwargs is REMOVED:
            return
        number = self._hooks.begin()
        inputs: dict[int, Given] = {}
        if not is_grad_enabled():
            skip_call(self._sites, NO_GRAD)
        else:
            for leaf, tensor in enumerate((*leaves(args), *leaves(kwargs))):
                if tensor.requires_grad and id(tensor) not in inputs:
                    inputs[id(tensor)] = Given(tensor, leaf, _edge(tensor), private.read_version(tensor))
            if not inputs:
                skip_call(self._sites, NOTHING_NEEDS_GRAD)
        self._under_way.append(Call(number, private.sequence_number(), list(inputs.values())))

    @dynamo.breaks_graph
    def after(self, module: nn.Module, args: Any, kwargs: Any, output: Any = REMOVED) -> Any:
        """Find the nodes that use the inputs. PyTorch calls this hook even if the forward pass raised an error."""
        if not self._under_way:
            return None
        call = self._under_way.pop()
        if output is None or output is REMOVED or not call.inputs or not is_grad_enabled():
            return None
        edges = {given.edge for given in call.inputs}

        def visit(x: Tensor) -> Tensor | None:
            passed_on = x.requires_grad and _edge(x) in edges
            return x.view_as(x) if passed_on else None

        output = map_leaves(output, visit)
        uses = uses_of(edges, [*leaves(output), *_kept(module)], call.start)
        for given in call.inputs:
            if not uses[given.edge]:
                skip_call(self._sites, NOT_USED)
                continue
            fire = self._hooks.on(given.tensor, call.number, given.leaf)
            one = Contribution(fire, given.edge, uses[given.edge], self._sites)
            if private.read_version(given.tensor) == given.version:
                one.wait_for(given.tensor)
        return output

    @property
    def _under_way(self) -> list[Call]:
        """Return this thread's running calls, innermost last. There may be several, since a module may call itself."""
        stack: list[Call] | None = getattr(self._calls, "stack", None)
        if stack is None:
            stack = self._calls.stack = []
        return stack


def _edge(tensor: Tensor) -> Edge:
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _kept(module: nn.Module) -> Iterator[Tensor]:
    """Yield tensors that a call stored on the module or its submodules, such as an auxiliary loss."""
    for part in module.modules():
        for value in vars(part).values():
            if isinstance(value, Tensor) and value.grad_fn is not None:
                yield value


def uses_of(edges: set[Edge], tensors: list[Tensor], start: int) -> dict[Edge, list[Use]]:
    """Find the nodes created since `start` that send a gradient along one of the edges."""
    uses: dict[Edge, list[Use]] = {edge: [] for edge in edges}
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


def grad_input_dispatch(sites: Sequence[Site], clock: StepClock) -> Callable[..., Any]:
    """Return the forward pre-hook that replaces each input with a hooked alias."""
    hooks = GradientHooks(sites, clock)

    @dynamo.breaks_graph
    def dispatch(module: nn.Module, args: Any, kwargs: Any = REMOVED) -> Any:
        if kwargs is REMOVED:
            return None
        call, leaf = hooks.begin(), -1
        if not is_grad_enabled():
            return skip_call(sites, NO_GRAD)
        views: dict[int, Tensor] = {}

        def visit(x: Tensor) -> Tensor | None:
            nonlocal leaf
            leaf += 1
            if not x.requires_grad:
                return None
            if id(x) not in views:
                views[id(x)] = hooks.alias(x, hooks.on(x, call, leaf), (id(module), "grad_input"))
            return views[id(x)]

        args, kwargs = map_leaves(args, visit), map_leaves(kwargs, visit)
        return (args, kwargs) if views else skip_call(sites, NOTHING_NEEDS_GRAD)

    return dispatch


class GradInputRegistration(ModuleRegistration):
    """Registers hooks at `grad_input`: on input aliases if a hook may modify gradients, otherwise on autograd nodes."""

    stage = 1

    def __init__(self, target: Target, point: str, clock: StepClock, rig: int, touched: Touched) -> None:
        super().__init__(target, point, clock, rig, touched)
        self._after: RemovableHandle | None = None

    def _dispatch(self) -> Callable[..., Any]:
        self._remove_after()
        active = self.serving.active
        if any(s.attached.definition.modifies for s in active):
            return Dispatch(grad_input_dispatch(active, self.clock))
        consumers = Consumers(active, self.clock)
        module = self.target.owner()
        if isinstance(module, nn.Module):
            self._after = module.register_forward_hook(Dispatch(consumers.after), with_kwargs=True, always_call=True)
        return Dispatch(consumers.before)

    def suspend(self) -> None:
        self._remove_after()
        super().suspend()

    def remove(self) -> None:
        self._remove_after()
        super().remove()

    def _remove_after(self) -> None:
        if self._after is not None:
            self._after.remove()
            self._after = None
