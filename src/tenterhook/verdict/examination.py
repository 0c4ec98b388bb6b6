"""Store what was found when a step was examined."""

from __future__ import annotations

from dataclasses import dataclass

from tenterhook.rig.rerun.operation_watch import Origin
from tenterhook.rig.rerun.second_run import Rerun


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

    @property
    def origin(self) -> Origin | None:
        """Return where the first bad value came from, or None if that is unknown or all values were finite."""
        return None if self.found is None else self.found.origin
