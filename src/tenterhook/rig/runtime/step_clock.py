"""Counts a rig's steps, and numbers the firings within a step."""

from __future__ import annotations

import itertools

from tenterhook.rig.runtime.forward_pass import ForwardPasses


class StepClock:
    """Counts steps.

    A step ends after the optimizer's step. Without an optimizer, it ends with the backward pass, the forward pass, or
    the `with rig.step():` block.
    """

    def __init__(self) -> None:
        self.step = 0
        #: the step in which a trigger last tripped, or -1 if none has tripped
        self.tripped = -1
        #: returns the next number in the order of all firings
        self.tick = itertools.count().__next__
        self.passes = ForwardPasses()

    def end_step(self) -> None:
        self.step += 1
        self.passes.counts = [0, 0]
