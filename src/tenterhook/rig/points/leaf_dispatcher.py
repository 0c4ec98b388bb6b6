"""Fires hooks on the tensor leaves of a call, and repeats their modifications in a recomputation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tenterhook import ranks
from tenterhook import torch_internals as private
from tenterhook.actions import BUILTIN
from tenterhook.errors import RefusedError
from tenterhook.rig.points.calling import Fire, chain, make_fire, make_replay
from tenterhook.rig.runtime.attached_hook import Site
from tenterhook.rig.runtime.forward_pass import ForwardPass
from tenterhook.rig.runtime.step_clock import StepClock
from tenterhook.rig.runtime.tensor_tree import hidden_in, leaves, map_leaves
from tenterhook.torch_internals.compiler import is_exporting

graph_task_id = private.graph_task_id
is_grad_enabled = torch.is_grad_enabled


class CallCounter:
    """Numbers the calls to a target within a step, for actions that take a context."""

    def __init__(self, clock: StepClock, sites: Sequence[Site]) -> None:
        self._clock = clock
        self._step = -1
        self._next = 0
        #: number of the call in each pass that may be recomputed; None if the pass has several calls
        self._of_pass: weakref.WeakKeyDictionary[ForwardPass, int | None] = weakref.WeakKeyDictionary()
        self.contexts = [s.ctx for s in sites if s.ctx is not None]

    def begin(self) -> int:
        """Begin a call and return its number."""
        if self._step != self._clock.step:
            self._step, self._next = self._clock.step, 0
        self._next += 1
        now = self._clock.passes.now
        if now.modifiers:
            self._of_pass[now] = None if now in self._of_pass else self._next - 1
        return self._next - 1

    def recomputed(self) -> int | None:
        """Return the number of the call that is being recomputed, or None if the step had several calls."""
        return 0 if self._next == 1 and self._step == self._clock.step else None

    def place(self, call: int | None, leaf: int) -> None:
        """Set the call number and the leaf index in all contexts."""
        for ctx in self.contexts:
            ctx._call, ctx.leaf = call, leaf

    def begin_replay(self, forward: ForwardPass, leaf: int) -> None:
        """Set the call number, the leaf index, and the step of the original forward pass in all contexts."""
        for ctx in self.contexts:
            ctx._call, ctx.leaf, ctx._step = self._of_pass.get(forward), leaf, forward.step

    def end_replay(self) -> None:
        for ctx in self.contexts:
            ctx._step = None


def numbered(fire: Fire, place: Callable[[int], None], *, first: int = 0) -> Fire:
    """Return a function that passes the index of each leaf to `place` before it calls `fire`."""
    leaf = first - 1

    def visit(x: Tensor) -> Tensor | None:
        nonlocal leaf
        leaf += 1
        place(leaf)
        new: Tensor | None = fire(x)
        return new

    return visit


class LeafDispatcher:
    """Fires hooks on the tensor leaves of each call to a target. In a recomputation, it only repeats modifications."""

    def __init__(self, active: Sequence[Site], serving: Sequence[Site], clock: StepClock) -> None:
        self._clock = clock
        self._calls = CallCounter(clock, serving)
        self._active = active
        self._fire = chain([make_fire(s) for s in active]) if active else None
        self._replays = [(s, make_replay(s)) for s in serving if s.attached.modifies_forward]
        self._may_keep = any(may_keep(s) for s in active)
        self._modifiers = frozenset(s.attached for s in active if s.attached.modifies_forward)
        #: the function to use for every call if no action takes a context, else None
        self.always = None if self._calls.contexts else self._fire

    def begin(self) -> Fire | None:
        """Return the function that fires the hooks in a new call.

        Return None if no hook is active or the model is being exported.
        """
        if self._fire is None or is_exporting():
            return None
        call = self._calls.begin()
        return numbered(self._fire, lambda leaf: self._calls.place(call, leaf))

    @property
    def idle(self) -> bool:
        return self._fire is None

    def enter(self) -> int:
        """Begin a call from compiled code and return its number."""
        return self._calls.begin() if self._calls.contexts and not self.idle else 0

    def at(self, call: int, leaf: int) -> Fire:
        """Return the function that fires the hooks on one leaf of a call that began with `enter`."""
        assert self._fire is not None
        self._calls.place(call, leaf)
        return self._fire

    def safe_copy(self, x: Tensor) -> Tensor:
        """Return a copy if an action might keep the value, because compiled code reuses the value's memory."""
        return x.clone() if self._may_keep else x.detach()

    def recompute(self, *, first: int = 0) -> Fire | None:
        """Return the function that repeats the hooks' modifications in a recomputation.

        Return None if there is nothing to repeat.
        """
        if not self._replays:
            return None
        clock = self._clock
        forward = clock.passes.recomputed()
        if forward is None or (forward.step != clock.step and any(s.attached.state for s, _ in self._replays)):
            site = self._replays[0][0]
            raise RefusedError(
                "a checkpoint recomputes a forward pass, but the hooks that modified it, or their state, have changed",
                hook=site.hook,
                target=site.name,
                point=site.point,
                remedy="call backward before you change the hook, or compute the loss from the model's own output",
            )
        fires = [replay(forward) for s, replay in self._replays if s.attached in forward.modifiers]
        if not fires:
            return None
        fire = numbered(chain(fires), lambda leaf: self._calls.begin_replay(forward, leaf), first=first)

        def visit(x: Tensor) -> Tensor | None:
            try:
                with clock.passes.repeating(forward):
                    new: Tensor | None = fire(x)
                return new
            finally:
                self._calls.end_replay()

        return visit

    def changed(self, new: Any) -> None:
        """Record that a forward pass in which hooks changed a value may be recomputed.

        Do nothing outside an activation checkpoint. A checkpoint either runs the forward pass with gradients disabled
        or installs saved-tensor hooks.
        """
        if is_grad_enabled() and private.saved_tensors_hooks(False) is None:
            return
        in_graph = [tensor for tensor in leaves(new) if tensor.grad_fn is not None]
        forward = self._clock.passes.modified(self._clock.step, self._modifiers, kept=bool(in_graph))
        for tensor in in_graph:
            tensor.register_hook(KeepAlive(forward))

    def fire_on_tree(self, tree: Any, fire: Fire, where: str) -> Any:
        """Fire the hooks on every tensor in a tree. Return the replacement for the tree, or None to keep it."""
        if is_exporting():  # torch.export uses fake tensors
            return None
        if not leaves(tree):
            self.skip(no_tensor(tree, where))
            return None
        hidden = hidden_in(tree)
        if hidden is not None:
            self.skip(not_seen(hidden))
            self._warn_of_hidden(hidden)
        new = map_leaves(tree, fire)
        if new is tree:
            return None
        self.changed(new)
        return new

    def replay_on_tree(self, tree: Any) -> Any:
        """Repeat the hooks' modifications on a recomputed tree. Return the new tree, or None to keep the tree."""
        fire = self.recompute()
        return None if fire is None else map_leaves(tree, fire)

    def skip(self, why: str) -> None:
        for site in self._active:
            site.skip(why)

    def _warn_of_hidden(self, kind: str) -> None:
        """Warn of tensors that a modifier leaves as they are. For an observer, the ledger says it."""
        site = next((s for s in self._active if s.attached.modifies_forward), None)
        if site is not None:
            ranks.warn_once(
                f"tenterhook: hook {site.hook!r} at {site.point} on {site.name!r}: {not_seen(kind)}\n"
                "  remedy: pass the tensors in a tuple, list, dict or dataclass"
            )

    def refuse_gradient(self) -> None:
        """Raise an error, because a modifier needs a gradient that compiled code does not compute."""
        site = next(s for s in self._active if s.attached.modifies_forward)
        raise RefusedError(
            "the action uses a tensor that requires grad, but compiled code computes no gradient for this value",
            hook=site.hook,
            target=site.name,
            point=site.point,
            remedy="make the module's input require grad, or attach the plan to an uncompiled model",
        )


def not_seen(kind: str) -> str:
    """Return why a hook does not act on some tensors of a value."""
    return f"the tensors in an object of type {kind} are not seen"


def no_tensor(tree: Any, where: str) -> str:
    return f"no tensor was found in the {where} (type: {type(tree).__name__})"


def may_keep(site: Site) -> bool:
    """Return True if the action might keep a reference to its argument.

    Built-in and two-phase actions never keep a reference.
    """
    definition = site.attached.definition
    return not definition.two_phase and BUILTIN.find(definition.name) is not definition


class KeepAlive:
    """Keeps a `ForwardPass` alive as long as its autograd graph exists.

    It is registered as a tensor hook, but does nothing when called.
    """

    __slots__ = ("forward",)

    def __init__(self, forward: ForwardPass) -> None:
        self.forward = forward

    def __call__(self, grad: Tensor | None) -> None:
        return None
