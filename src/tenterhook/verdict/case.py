"""Collect what the rules need to know about a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tenterhook.verdict.examination import Examination
from tenterhook.verdict.history import History, StepNumbers


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
        past = [abs(loss) for at, loss in self.history.losses if at < step and math.isfinite(loss)]
        return median(past[-count:]) if past else None

    def usual_total(self, step: int, count: int = 32) -> float | None:
        """Return the median of the norms of all gradients before a step, or None if there are none."""
        past = [total for at, total in self.history.totals if at < step and math.isfinite(total)]
        return median(past[-count:]) if past else None

    def moves(self, step: int) -> dict[str, float]:
        """Return by what factor each parameter moved further in the step before than it usually does.

        A parameter is left out if it was not measured or usually does not move.
        """
        numbers = self.numbers(step)
        if numbers is None:
            return {}
        usual = self.history.usual_moves(step)
        found = zip(self.history.names, numbers.moved, usual, strict=False)
        return {name: now / past for name, now, past in found if now is not None and past and math.isfinite(now)}
