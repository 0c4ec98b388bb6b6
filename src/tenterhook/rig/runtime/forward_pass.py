"""Tracks the forward passes of the root module: the running pass, and the pass that is being recomputed."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from tenterhook import torch_internals as private


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


#: a pass in which no hook changed a value inside a checkpoint, so that there is nothing to repeat
_UNCHANGED = ForwardPass(0, 0, frozenset(), True)


class ForwardPasses:
    """Tracks the current forward pass, the one whose backward pass is running, and those that may be recomputed."""

    def __init__(self, is_called: Callable[[], bool]) -> None:
        #: returns True if a call of the root is on the stack
        self._is_called = is_called
        #: number of forward passes of the root in this step, in evaluation mode and in training mode; counted
        #: separately, so that an additional evaluation does not change the random numbers used in training
        self.counts = [0, 0]
        #: when the first forward pass of the root in this step began, or NaN
        self.first = math.nan
        #: True while a forward pass of the root is running; updated only if the root has a hook at the end of the pass
        self.under_way = False
        #: True if compiled code calls the root, so that its calls are not on the stack
        self.compiled = False
        self.now = ForwardPass(0, 0, frozenset(), True)
        #: the forward pass whose backward pass is running, if the gradient passed through the root's output
        self.replayed: ForwardPass | None = None
        #: graph task id of the backward pass of `replayed`
        self.task = -1
        #: the forward pass that an action is repeated for
        self.repeated: ForwardPass | None = None
        self._alive: weakref.WeakSet[ForwardPass] = weakref.WeakSet()
        #: the forward pass in which each activation checkpoint ran, if a hook changed a value inside it
        self._of_checkpoint: weakref.WeakKeyDictionary[object, Callable[[], ForwardPass | None]] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def is_under_way(self) -> bool:
        """Return True if a forward pass of the root is running. Look at the stack, so do not call this in every hook.

        An interrupt such as Ctrl-C ends a call without running the hook at its end.
        """
        if self.under_way and not self.compiled and not self._is_called():
            self.under_way = False
        return self.under_way

    def begin(self, step: int, modifiers: frozenset[Hashable], *, training: bool) -> None:
        """Begin a forward pass of the root."""
        if math.isnan(self.first):
            self.first = time.perf_counter()
        self.counts[training] += 1
        self._begin(ForwardPass(step, self.counts[training], modifiers, training))

    def modified(self, step: int, modifiers: frozenset[Hashable], *, kept: bool) -> ForwardPass:
        """Return the current pass, in which a checkpoint will repeat these modifiers.

        If a module is called without the root, no pass has begun, so each checkpoint counts as a pass of its own. If
        `kept` is True, the graph keeps the pass alive. Otherwise, the checkpoint does.
        """
        around, now = private.checkpoints_around(), self.now
        if not self.is_under_way:
            forward = self._known(around) or ForwardPass(step, now.index, frozenset(), now.training)
            forward.modifiers |= modifiers
            self._alive.add(forward)
        elif modifiers <= now.modifiers:
            forward = now
        else:
            forward = ForwardPass(now.step, now.index, now.modifiers | modifiers, now.training)
            self._begin(forward)
        forward.recomputes = True
        self._remember(forward, around, kept=kept)
        return forward

    def _known(self, checkpoints: list[object]) -> ForwardPass | None:
        """Return the pass in which the innermost of these checkpoints ran for which it is known."""
        known = (self._of_checkpoint.get(checkpoint) for checkpoint in checkpoints)
        return next((forward for get in known if get is not None and (forward := get()) is not None), None)

    def _remember(self, forward: ForwardPass, checkpoints: list[object], *, kept: bool) -> None:
        for checkpoint in checkpoints:
            if checkpoint not in self._of_checkpoint or not kept:
                self._of_checkpoint[checkpoint] = weakref.ref(forward) if kept else lambda: forward

    def _begin(self, now: ForwardPass) -> None:
        self.now = now
        if now.modifiers:
            self._alive.add(now)

    def recomputed(self) -> ForwardPass | None:
        """Return the pass that is being recomputed, or None if it cannot be determined."""
        around = private.checkpoints_around()
        found = self._known(around)
        if found is not None:
            self._remember(found, around, kept=True)  # a checkpoint inside another one has a new object
            return found
        if around:
            return _UNCHANGED
        if self.replayed is not None:
            return self.replayed
        kinds = {p.modifiers for p in self._alive if p.recomputes} | {self.now.modifiers}
        return self.now if len(kinds) == 1 else None

    @contextmanager
    def repeating(self, forward: ForwardPass) -> Iterator[None]:
        """Repeat an action for a forward pass inside the block."""
        before, self.repeated = self.repeated, forward
        try:
            yield
        finally:
            self.repeated = before

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
