"""Tracks the forward passes of the root module: the running pass, and the pass that is being recomputed."""

from __future__ import annotations

import weakref
from collections.abc import Hashable


class ForwardPass:
    """Describes one forward pass of the root module and the hooks that modify it.

    The autograd graph keeps this object alive as long as a checkpoint may recompute the pass.
    """

    __slots__ = ("__weakref__", "index", "modifiers", "recomputes", "step", "training")

    def __init__(self, step: int, index: int, modifiers: frozenset[Hashable], training: bool) -> None:
        self.step = step
        self.index = index
        self.modifiers = modifiers
        self.training = training
        #: True if a module with a modifier ran inside an activation checkpoint
        self.recomputes = False


class ForwardPasses:
    """Tracks the current forward pass, the one whose backward pass is running, and those that may be recomputed."""

    def __init__(self) -> None:
        #: number of forward passes of the root in this step, in evaluation mode and in training mode; counted
        #: separately, so that an additional evaluation does not change the random numbers used in training
        self.counts = [0, 0]
        #: True while a forward pass of the root is running; updated only if the root has a hook at the end of the pass
        self.under_way = False
        self.now = ForwardPass(0, 0, frozenset(), True)
        #: the forward pass whose backward pass is running, if the gradient passed through the root's output
        self.replayed: ForwardPass | None = None
        #: graph task id of the backward pass of `replayed`
        self.task = -1
        self._alive: weakref.WeakSet[ForwardPass] = weakref.WeakSet()

    def begin(self, step: int, modifiers: frozenset[Hashable], *, training: bool) -> None:
        """Begin a forward pass of the root."""
        self.counts[training] += 1
        self._begin(ForwardPass(step, self.counts[training], modifiers, training))

    def widen(self, modifiers: frozenset[Hashable]) -> None:
        """Add modifiers to the current pass without counting a new pass."""
        now = self.now
        self._begin(ForwardPass(now.step, now.index, now.modifiers | modifiers, now.training))

    def _begin(self, now: ForwardPass) -> None:
        self.now = now
        if now.modifiers:
            self._alive.add(now)

    def recomputed(self) -> ForwardPass | None:
        """Return the pass that is being recomputed, or None if it cannot be determined."""
        if self.replayed is not None:
            return self.replayed
        kinds = {p.modifiers for p in self._alive if p.recomputes} | {self.now.modifiers}
        return self.now if len(kinds) == 1 else None

    def replayable(self) -> frozenset[Hashable]:
        """Return the modifiers that a recomputation may still need."""
        return frozenset().union(*(p.modifiers for p in self.recomputing()))

    def recomputing(self) -> list[ForwardPass]:
        """Return the passes that a checkpoint may still recompute."""
        return [p for p in self._alive if p.recomputes]

    def backward_ended(self) -> None:
        self.replayed = None

    def forget(self) -> None:
        """Release the passes that no autograd graph holds."""
        self.replayed = None
        self.now = ForwardPass(self.now.step, self.now.index, frozenset(), self.now.training)
