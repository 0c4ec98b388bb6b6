"""Define what the user interface asks for and what it receives.

`ui/src/data/source.ts` declares the same types. JSON has no infinity and no NaN, so such a number is null.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

#: a range of places in the list of targets, without its end
Range = tuple[int, int]

MAX_ROWS, MAX_COLUMNS, MAX_CELLS, MAX_POINTS = 4096, 2000, 2_000_000, 4000
#: no module is nested so deeply; rows of a module and of its children overlap
MAX_DEPTH = 64


class RunHead(msgspec.Struct, kw_only=True):
    """Identifies a run. `live` is True while a process records it."""

    id: str
    title: str
    path: str
    live: bool


class Series(msgspec.Struct):
    """Names a recorded number, and lists the targets for which it was recorded."""

    hook: str
    name: str
    at: str | None
    ranges: list[Range]


class Histograms(msgspec.Struct):
    """Names a hook that recorded histograms, and lists its targets."""

    hook: str
    ranges: list[Range]


class RunSummary(RunHead, kw_only=True):
    """Describes a run, without its numbers. The targets are in model order, so those of a module are a range."""

    revision: str
    first: int
    last: int
    sentence: str
    tone: Literal["healthy", "sick", "unknown"]
    targets: list[str]
    types: dict[str, str]
    series: list[Series]
    histograms: list[Histograms]
    verdicts: list[Any]
    findings: list[dict[str, Any]]
    #: the page about each code among the verdicts and findings, as Markdown
    pages: dict[str, str]
    ledger: list[dict[str, Any]]
    flights: list[Any]
    plan: dict[str, str | None] | None
    dropped: int


class MatrixRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Asks for one number by rows of targets and columns of steps.

    A cell has the largest magnitude, or the mean, over the targets of its row and the steps of its column.
    """

    run: str
    hook: str
    name: str
    rows: list[Range]
    first: int
    each: int
    columns: int
    of: Literal["maximum", "mean"] = "maximum"

    def problem(self, targets: int) -> str | None:
        """Return why the request cannot be answered, or None."""
        if not 1 <= len(self.rows) <= MAX_ROWS or not 1 <= self.columns <= MAX_COLUMNS:
            return f"a request has 1 to {MAX_ROWS} rows and 1 to {MAX_COLUMNS} columns"
        if len(self.rows) * self.columns > MAX_CELLS:
            return f"a request has at most {MAX_CELLS:,} cells"
        if not 1 <= self.each < 2**50 or not -(2**53) < self.first < 2**53:
            return "`each` is from 1 to 2**50, and steps are less than 2**53"
        if not all(0 <= start < end <= targets for start, end in self.rows):
            return f"each row is a range of the {targets:,} targets"
        if sum(end - start for start, end in self.rows) > MAX_DEPTH * targets:
            return f"a target is in at most {MAX_DEPTH} rows on average"
        return None


class CurveRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Asks for one number of one target by step, with at most so many points."""

    run: str
    hook: str
    name: str
    target: int
    first: int
    last: int
    points: int

    def problem(self, targets: int) -> str | None:
        """Return why the request cannot be answered, or None."""
        if not 0 <= self.target < targets:
            return f"the target is one of {targets:,}"
        if not 1 <= self.points <= MAX_POINTS:
            return f"a curve has 1 to {MAX_POINTS} points"
        if not -(2**53) < self.first <= self.last < 2**53:
            return "the first step is not after the last one, and steps are less than 2**53"
        return None


class Curve(msgspec.Struct):
    """Holds the least and the largest value at each point, and the steps with a value that is not finite."""

    steps: list[int]
    low: list[float | None]
    high: list[float | None]
    nonfinite: list[int]


class Histogram(msgspec.Struct):
    """Holds one list of counts for each step, and the lower edge of each bin."""

    steps: list[int]
    counts: list[list[float]]
    edges: list[float]


class TargetNumber(msgspec.Struct):
    """Summarises what one hook recorded under one name for one target."""

    hook: str
    name: str
    count: int
    nonfinite: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    last: float | None
    last_step: int


class Change(msgspec.Struct):
    """Says that a run has new rows or a new state."""

    run: str
    last: int
    revision: str
    live: bool


def finite(value: float | None) -> float | None:
    """Return a number for JSON, which has no infinity and no NaN."""
    return value if value is not None and math.isfinite(value) else None


def ranges_of(places: list[int]) -> list[Range]:
    """Return sorted places as ranges."""
    found: list[list[int]] = []
    for place in places:
        if found and found[-1][1] == place:
            found[-1][1] += 1
        else:
            found.append([place, place + 1])
    return [(start, end) for start, end in found]
