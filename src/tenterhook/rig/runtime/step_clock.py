"""The step clock: counts steps, and orders the firings within one."""

from __future__ import annotations

import itertools

from tenterhook.rig.runtime.forward_pass import ForwardPasses


class StepClock:
    """Counts steps. A step ends when the optimizer has stepped, or at what stands in for it."""

    def __init__(self) -> None:
        self.step = 0
        #: the step a trigger last tripped in
        self.tripped = -1
        #: returns the place of a firing in the order of all
        self.tick = itertools.count().__next__
        self.passes = ForwardPasses()

    def end_step(self) -> None:
        self.step += 1
        self.passes.counts = [0, 0]
