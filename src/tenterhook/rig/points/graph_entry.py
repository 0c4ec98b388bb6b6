"""Defines the graph callbacks that replace module hooks in compiled code, for values and for gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from tenterhook.rig.compiled.gradient_callbacks import Call, call_with_gradient
from tenterhook.rig.compiled.graph_ops import Change, GraphCallback, operations
from tenterhook.rig.points.gradient_hooks import NO_GRAD, NOTHING_NEEDS_GRAD, GradientHooks, skip_call
from tenterhook.rig.points.leaf_dispatcher import LeafDispatcher, graph_task_id, is_grad_enabled, no_tensor
from tenterhook.rig.runtime.attached_hook import Site
from tenterhook.rig.runtime.step_clock import StepClock
from tenterhook.rig.runtime.tensor_tree import leaves, map_leaves
from tenterhook.torch_internals import compiler as dynamo


def _copied(x: Tensor) -> Tensor:
    """Copy a tensor that autograd saves, because compiled code reuses the tensor's memory."""
    return x.detach().clone()


def _as_it_was(x: Tensor) -> Tensor:
    return x


class ValueCallback(GraphCallback):
    """Calls the hooks at the points `input` and `output`."""

    def __init__(self, clock: StepClock) -> None:
        super().__init__()
        self._dispatcher = LeafDispatcher((), (), clock)
        self._call = 0
        #: True once a hook may change the value; never reset, because a reset would cause a recompilation
        self.changes = False

    def set_hooks(self, dispatcher: LeafDispatcher) -> None:
        self._dispatcher = dispatcher

    def allow_for(self, sites: Sequence[Site]) -> None:
        """Set `changes` if one of these sites may change the value."""
        self.changes = self.changes or any(s.attached.definition.modifies for s in sites)

    def traced(self, tree: Any, where: str) -> Any:
        """Add the operations for this call to the graph that is being compiled."""
        if not self.changes:
            found = leaves(tree)
            for leaf, x in enumerate(found):
                operations.observe(x.detach(), self.token, leaf)
            if not found:
                operations.skip(self.token, no_tensor(tree, where))
            return tree
        ticket = operations.enter(self.token)
        leaf = -1

        def visit(x: Tensor) -> Tensor:
            nonlocal leaf
            leaf += 1
            records = torch.is_grad_enabled()
            new, change = operations.change(x, ticket, leaf, records, records and x.requires_grad)
            operations.changed(change, self.token)
            replaced: Tensor = new
            return replaced

        new = map_leaves(tree, visit)
        if leaf < 0:
            operations.skip(self.token, no_tensor(tree, where))
        return new

    def enter(self) -> int:
        return self._dispatcher.enter() if graph_task_id() == -1 else 0

    def observe(self, x: Tensor, leaf: int) -> None:
        dispatcher = self._dispatcher
        if graph_task_id() != -1 or dispatcher.idle:
            return
        if leaf == 0:
            self._call = dispatcher.enter()
        dispatcher.at(self._call, leaf)(dispatcher.safe_copy(x))

    def change(self, x: Tensor, call: int, leaf: int, *, records: bool, needs_grad: bool) -> Change | None:
        dispatcher = self._dispatcher
        again = graph_task_id() != -1
        fire = dispatcher.recompute(first=leaf) if again else None if dispatcher.idle else dispatcher.at(call, leaf)
        if fire is None:
            return None
        given = dispatcher.safe_copy(x).requires_grad_(needs_grad)
        with dynamo.recording_again(), torch.set_grad_enabled(records), saved_tensors_hooks(_copied, _as_it_was):
            made = fire(given)
        if made is None:
            return None
        if made.requires_grad and not needs_grad:
            dispatcher.refuse_gradient()
        if not again:
            dispatcher.changed(made.detach())
        return Change(dispatcher.safe_copy(made), given if needs_grad else None, made)

    def skip(self, why: str) -> None:
        self._dispatcher.skip(why)


#: how many times the hooks may change between a forward pass and its backward pass
KEPT = 64
#: larger than the number of calls in any step
CALLS = 2**32


class GradientCallback(GraphCallback):
    """Calls the hooks at the point `grad_output`."""

    def __init__(self, clock: StepClock) -> None:
        super().__init__()
        self._hooks = GradientHooks((), clock)
        self._generation = 0
        self._served: dict[int, GradientHooks] = {}
        #: True once an action needs the forward values; never reset, because a reset would cause a recompilation
        self.keeps = False

    def set_hooks(self, hooks: GradientHooks) -> None:
        """Use these hooks from now on.

        A backward pass uses the hooks that were in effect during its forward pass, so the most recent `KEPT` sets of
        hooks are stored.
        """
        self._generation += 1
        self._served[self._generation] = self._hooks = hooks
        self._served.pop(self._generation - KEPT, None)

    def allow_for(self, sites: Sequence[Site]) -> None:
        """Set `keeps` if the action of one of these sites needs the forward values."""
        self.keeps = self.keeps or any(s.attached.definition.needs_value for s in sites)

    def traced(self, module: nn.Module, output: Any) -> Any:
        """Add the operations for this call to the graph that is being compiled."""
        ticket = operations.enter(self.token)
        if not is_grad_enabled():
            operations.skip(self.token, NO_GRAD)
            return None
        leaf, found = -1, False

        def visit(x: Tensor) -> Tensor | None:
            nonlocal leaf, found
            leaf += 1
            if not x.requires_grad:
                return None
            found = True
            return call_with_gradient(x, module, Call(ticket, leaf, x.detach() if self.keeps else None))

        new = map_leaves(output, visit)
        if not found:
            operations.skip(self.token, no_tensor(output, "output") if leaf < 0 else NOTHING_NEEDS_GRAD)
        return new

    def enter(self) -> int:
        call = self._hooks.begin()
        return self._generation * CALLS + (0 if call is None else call + 1)

    def on_gradient(self, grad: Tensor, call: int, leaf: int, value: Tensor | None) -> Tensor | None:
        generation, number = divmod(call, CALLS)
        hooks = self._served.get(generation, self._hooks)
        if not hooks.sites:
            return None
        value = None if value is None else value.clone()
        new = hooks.at(hooks.safe_copy(grad), number - 1 if number else None, leaf, value)
        return None if new is None else hooks.safe_copy(new)

    def skip(self, why: str) -> None:
        skip_call(self._hooks.sites, why)
