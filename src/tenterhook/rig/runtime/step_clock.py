"""The step clock, and the passes: which forward a recomputation belongs to."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenterhook.errors import TenterhookError
    from tenterhook.rig.runtime.attached_hook import LiveHook


class Pass:
    """One forward of the root: what modified it. The graph holds it, so it lives as long as it may recompute."""

    __slots__ = ("__weakref__", "index", "modifiers", "recomputes", "step", "training")

    def __init__(self, step: int, index: int, modifiers: frozenset[LiveHook], training: bool) -> None:
        self.step = step
        self.index = index
        self.modifiers = modifiers
        self.training = training
        #: a module with a modifier ran inside an activation checkpoint
        self.recomputes = False


class Clock:
    """Counts steps; a step ends when the optimizer has stepped, or at what stands in for it."""

    def __init__(self) -> None:
        self.step = 0
        #: other ranks count the same steps; what failed in this one is told to them before the optimizer's step
        self.shared = False
        self.poison: TenterhookError | None = None
        #: hands out the order of firings
        self.tick = itertools.count().__next__
        #: root forwards within the step, in evaluation and in training: another evaluation moves no training noise
        self.forwards = [0, 0]
        #: a forward of the root is under way; kept only where its end is watched
        self.in_forward = False
        self.now = Pass(0, 0, frozenset(), True)
        #: the pass whose graph runs backward, if its root output was seen
        self.replayed: Pass | None = None
        #: the backward that graph runs in
        self.task = -1
        self._passes: weakref.WeakSet[Pass] = weakref.WeakSet()
        #: the step a trigger last tripped in
        self.tripped = -1
        #: gradients have come to parameters since the last step
        self.accumulated = False
        #: the end of the running backward is waited for, to see that
        self.looks = False
        #: a site was muted by its own failure and is to be taken down
        self.stale = False

    def end_step(self) -> None:
        self.step += 1
        self.accumulated = False
        self.forwards = [0, 0]

    def begin_pass(self, modifiers: frozenset[LiveHook], *, training: bool) -> None:
        self.forwards[training] += 1
        self._begin(Pass(self.step, self.forwards[training], modifiers, training))

    def widen_pass(self, modifiers: frozenset[LiveHook]) -> None:
        """The same forward once more, with more that modified it: it is not counted as another."""
        now = self.now
        self._begin(Pass(now.step, now.index, now.modifiers | modifiers, now.training))

    def _begin(self, now: Pass) -> None:
        self.now = now
        if now.modifiers:
            self._passes.add(now)

    def recomputed(self) -> Pass | None:
        """The pass that is being recomputed; None if it cannot be told."""
        if self.replayed is not None:
            return self.replayed
        kinds = {p.modifiers for p in self._passes if p.recomputes} | {self.now.modifiers}
        return self.now if len(kinds) == 1 else None

    def replayable(self) -> frozenset[LiveHook]:
        """The modifiers that a graph which is still alive would need to recompute."""
        return frozenset().union(*(p.modifiers for p in self.recomputing()))

    def recomputing(self) -> list[Pass]:
        return [p for p in self._passes if p.recomputes]

    def backward_ended(self) -> None:
        self.replayed = None

    def forget(self) -> None:
        """Let go of the passes that only the clock holds."""
        self.replayed = None
        self.now = Pass(self.now.step, self.now.index, frozenset(), self.now.training)
