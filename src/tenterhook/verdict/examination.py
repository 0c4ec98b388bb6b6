"""Store what was found when a step was examined."""

from __future__ import annotations

from dataclasses import dataclass

from tenterhook.rig.rerun.operation_watch import Origin
from tenterhook.rig.rerun.second_run import Rerun
from tenterhook.verdict.history import StepNumbers


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
