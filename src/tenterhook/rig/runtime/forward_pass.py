"""Forward passes of the root: which one runs, and which one a recomputation belongs to."""

from __future__ import annotations

import weakref
from collections.abc import Hashable


class ForwardPass:
    """One forward of the root and the hooks that modify it. Its graph keeps it alive as long as it may recompute."""

    __slots__ = ("__weakref__", "index", "modifiers", "recomputes", "step", "training")

    def __init__(self, step: int, index: int, modifiers: frozenset[Hashable], training: bool) -> None:
        self.step = step
        self.index = index
        self.modifiers = modifiers
        self.training = training
        #: a module with a modifier ran inside an activation checkpoint
        self.recomputes = False


class ForwardPasses:
    """The forward under way, the one that runs backward, and all that a living graph may recompute."""

    def __init__(self) -> None:
        #: root forwards within the step, in evaluation and in training: another evaluation moves no training noise
        self.counts = [0, 0]
        #: a forward of the root is under way; known only where its end is watched
        self.under_way = False
        self.now = ForwardPass(0, 0, frozenset(), True)
        #: the pass whose graph runs backward, if its root output was seen
        self.replayed: ForwardPass | None = None
        #: the backward that graph runs in
        self.task = -1
        self._alive: weakref.WeakSet[ForwardPass] = weakref.WeakSet()

    def begin(self, step: int, modifiers: frozenset[Hashable], *, training: bool) -> None:
        """Begin a forward of the root."""
        self.counts[training] += 1
        self._begin(ForwardPass(step, self.counts[training], modifiers, training))

    def widen(self, modifiers: frozenset[Hashable]) -> None:
        """Begin the same forward once more, with more modifiers: it is not counted as another."""
        now = self.now
        self._begin(ForwardPass(now.step, now.index, now.modifiers | modifiers, now.training))

    def _begin(self, now: ForwardPass) -> None:
        self.now = now
        if now.modifiers:
            self._alive.add(now)

    def recomputed(self) -> ForwardPass | None:
        """Return the pass that is being recomputed, or None if that cannot be known."""
        if self.replayed is not None:
            return self.replayed
        kinds = {p.modifiers for p in self._alive if p.recomputes} | {self.now.modifiers}
        return self.now if len(kinds) == 1 else None

    def replayable(self) -> frozenset[Hashable]:
        """Return the modifiers that a living graph would need to recompute."""
        return frozenset().union(*(p.modifiers for p in self.recomputing()))

    def recomputing(self) -> list[ForwardPass]:
        """Return the passes that a living graph may recompute."""
        return [p for p in self._alive if p.recomputes]

    def backward_ended(self) -> None:
        self.replayed = None

    def forget(self) -> None:
        """Let go of the passes that nothing else holds."""
        self.replayed = None
        self.now = ForwardPass(self.now.step, self.now.index, frozenset(), self.now.training)
