"""Points in time: how many backwards and steps had run, and which graph node came next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in the order of things: how many there were before, and the number of the graph's next node."""

    backwards: int
    steps: int
    sequence: int
