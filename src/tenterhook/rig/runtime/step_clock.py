"""Counts a rig's steps and numbers its firings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from tenterhook import torch_internals as private
from tenterhook.rig.runtime.forward_pass import ForwardPasses


class StepClock:
    """Counts steps.

    A step ends after `optimizer.step()`. Without an optimizer, a step ends with the backward pass, or with the
    forward pass if no gradient is required. A program can also define its own steps, using `with rig.step():`.

    Args:
        is_called: Returns True if a call of the root is on the stack.
    """

    def __init__(self, is_called: Callable[[], bool]) -> None:
        self.step = 0
        #: the step in which a trigger last tripped, or -1 if none has tripped
        self.tripped = -1
        self._firings = itertools.count()
        #: returns the next number in the order of all firings
        self.tick: Callable[[], int] = self._firings.__next__
        self.passes = ForwardPasses(is_called)

    @property
    def firings(self) -> int:
        """Return the number of firings so far. A counter of its own would cost each firing more."""
        return int(repr(self._firings)[len("count(") : -1])

    def watch(self, outside_root: Callable[[], None]) -> None:
        """Call a function when a hook fires while neither the root nor a backward pass is running."""
        count, passes = self.tick, self.passes

        def tick() -> int:
            if not passes.under_way and private.graph_task_id() == -1:
                outside_root()
            return count()

        self.tick = tick

    def end_step(self) -> None:
        self.step += 1
        self.passes.counts, self.passes.first = [0, 0], math.nan
