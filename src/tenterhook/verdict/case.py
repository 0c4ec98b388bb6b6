"""Collect what the rules need to know about a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from statistics import median

from tenterhook.rig.rerun.operation_watch import Origin
from tenterhook.rig.rerun.second_run import Rerun
from tenterhook.verdict.history import History, StepNumbers
from tenterhook.verdict.unusual import ParameterLeap

#: an event is a cause if trouble begins within so many steps
SOON = 12
#: a weight changed suddenly if it moved so many times further than usual
SUDDEN = 100.0
#: ... and other gradients may be unusual for so many steps
LONG = 64
#: the losses of so many steps before and after a step are compared, if there are enough of them
WINDOWS, ENOUGH = (6, 20), 5
#: a rise of the loss by less than such a part of the first losses is nothing
NOTHING = 0.01


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, apart from its numbers."""

    name: str
    size: int
    dimensions: int
    #: True if an optimizer holds the parameter
    held: bool
    #: True if the parameter requires grad
    trains: bool


@dataclass(frozen=True, slots=True)
class Examination:
    """A step that looked wrong, and what was found when it ran again."""

    step: int
    #: why the step was examined
    reason: str
    #: what was found, or None if the step could not run again
    found: Rerun | None
    #: why the step could not run again
    refusal: str | None
    #: the rank on which the problem began, or None in a single process
    rank: int | None = None
    #: the numbers that were measured before the optimizer's step, or None if the program skipped it
    numbers: StepNumbers | None = None

    @property
    def place(self) -> str:
        """Return the step, and the rank if there are several, for the beginning of a sentence."""
        return f"Step {self.step}" if self.rank is None else f"Step {self.step}, rank {self.rank}"

    @property
    def origin(self) -> Origin | None:
        """Return where the first bad value came from, or None if that is unknown or all values were finite."""
        return None if self.found is None else self.found.origin


@dataclass(frozen=True, slots=True)
class Case:
    """A run, as the rules see it."""

    history: History
    examinations: Sequence[Examination]
    #: all parameters of the model, in the order of the modules
    parameters: Sequence[Parameter]
    #: the norm of all gradients before they were clipped, or None or NaN if it is unknown
    unclipped: float | None = None

    @property
    def trouble(self) -> int | None:
        """Return the first step whose loss or gradients leapt or were not finite, or None if there is none."""
        return min((one.step for one in self.examinations), default=None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why the first steps were examined."""
        return tuple(f"step {one.step}: {one.reason}" for one in self.examinations[:3])

    def numbers(self, step: int) -> StepNumbers | None:
        """Return the numbers of a recent step."""
        return next((one for one in self.history.recent if one.step == step), None)

    def usual_loss(self, step: int, count: int = 32) -> float | None:
        """Return the median of the losses before a step, or None if there are none."""
        past = self.history.losses.before(step, count)
        return median(map(abs, past)) if past else None

    def usual_total(self, step: int, count: int = 32) -> float | None:
        """Return the median of the norms of all gradients before a step, or None if there are none."""
        past = self.history.totals.before(step, count)
        return median(past) if past else None

    def movement(self, step: int) -> ParameterLeap | None:
        """Return how far the weights moved before a step, or None if that was as usual."""
        return next((one for one in self.history.movements.found if one.step == step), None)

    def overwritten(self, step: int) -> bool:
        """Return True if a weight changed suddenly in the steps before a step, by far more than an update."""
        recent = [one for one in self.history.movements.found if step - LONG <= one.step <= step]
        return any(max(one.factors.values()) > SUDDEN for one in recent)

    def became_worse(self, step: int) -> tuple[float, float] | None:
        """Return the median loss before and after a step, if it rose by far more than it usually varies."""
        losses = self.history.losses
        first = list(islice((abs(loss) for _, loss in losses if math.isfinite(loss)), ENOUGH))
        least = NOTHING * median(first) if first else 0.0
        for window in WINDOWS:
            before = list(filter(math.isfinite, losses.between(step - window, step)))
            after = list(filter(math.isfinite, losses.between(step, step + window)))
            if len(before) < ENOUGH or len(after) < ENOUGH:
                continue
            usual, new = median(before), median(after)
            noise = median(abs(one - other) for one, other in pairwise(before))  # a trend does not count
            if new > usual + max(4.0 * noise, 0.2 * abs(usual), least):
                return usual, new
        return None

    def ends_badly(self, step: int) -> bool:
        """Return True if the loss does not return to its level before a step, or soon is not finite.

        A training that breaks later, when the loss was as usual again, has another cause.
        """
        usual = self.usual_loss(step)
        bad = [at for at, loss in self.history.losses if at > step and not math.isfinite(loss)]
        bad += [one.step for one in self.examinations if one.origin is not None and one.step >= step]
        end = min(bad, default=self.history.last + 1)
        if bad and end <= step + SOON:
            return True
        later = self.history.losses.between(step + 1, end)[-10:]
        return bool(later) and usual is not None and median(later) > usual + max(0.5 * abs(usual), 1e-12)

    def harm(self, step: int, soon: int = SOON) -> str:
        """Describe the harm soon after a step: the training broke, or the loss rose. The text is empty without harm."""
        trouble = min((one.step for one in self.examinations if one.step >= step), default=None)
        if trouble is not None and trouble <= step + soon:
            late = trouble - step
            when = f"{late} step{'s' * (late > 1)} later" if late else "in the same step"
            return f"The loss or the gradients leapt {when}."
        losses = self.became_worse(step)
        return f"The loss rose from {losses[0]:.3g} to {losses[1]:.3g}." if losses is not None else ""
