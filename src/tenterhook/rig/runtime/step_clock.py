"""Counts a rig's steps and numbers its firings."""

from __future__ import annotations

import itertools

from tenterhook.rig.runtime.forward_pass import ForwardPasses


class StepClock:
    """Counts steps.

    A step ends after `optimizer.step()`. Without an optimizer, a step ends with the backward pass, or with the
    forward pass if no gradient is required. A program can also define its own steps, using `with rig.step():`.
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
