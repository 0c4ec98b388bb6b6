"""Read the cells of docs/matrix.md, and compute them again to compare them with the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from tenterhook.plan import POINTS
from tests.support.random_programs import transitions
from tests.support.ranks import table as ranks
from tests.support.ranks.regimes import REGIMES as RANKS
from tests.support.rig import matrix
from tests.support.rig.compiled import COMPILED
from tests.support.rig.regimes import REGIMES

#: the parts of the page, and the heading above the table of each
HEADINGS = {
    "eager": "# The matrix: same point, same meaning",
    "compiled": "## Compiled",
    "transitions": "## Transitions",
    "ranks": "## On several ranks",
}

#: the row and the point of a cell, and a function that computes its mark
Cell = tuple[str, str, Callable[[], str]]


@cache
def on_page(part: str) -> dict[tuple[str, str], str]:
    """Return the mark of each cell in a part of the page, by row and point."""
    page = (Path(__file__).parents[2] / "docs" / "matrix.md").read_text()
    lines = page.partition(f"{HEADINGS[part]}\n")[2].partition("\n## ")[0].splitlines()
    head, _, *rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    return {(row[0], point.strip("`")): mark for row in rows for point, mark in zip(head[1:], row[1:], strict=True)}


def cells(part: str) -> Iterator[Cell]:
    """Yield the cells of a part of the page."""
    if part == "transitions":
        for transition in transitions.TRANSITIONS:
            for via in transitions.WAYS:
                for point in transitions.POINTS:
                    yield transitions.row_name(transition, via), point, partial(_transition, transition, point, via)
    elif part == "ranks":
        for regime in RANKS:
            for point in POINTS:
                yield regime, point, partial(_ranks, regime, point)
    else:
        for regime in REGIMES if part == "eager" else COMPILED:
            for point in POINTS:
                yield regime, point, partial(_alone, point, regime)


def differences(part: str) -> Iterator[str]:
    """Compute the cells of a part again. Yield a text for each cell that differs from the page."""
    known = on_page(part)
    for row, point, compute in cells(part):
        try:
            mark = compute()
        except Exception as error:  # a cell that fails differs, and the others are computed all the same
            mark = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:120]}"
        if mark != known[row, point]:
            yield f"{row}, {point}: {mark} instead of {known[row, point]}"


def _alone(point: str, regime: str) -> str:
    return matrix.MARKS[matrix.check(point, regime).word]


def _transition(transition: str, point: str, via: str) -> str:
    return transitions.mark_of(transitions.check(transition, point, via))


@cache
def _outcomes(regime: str) -> dict[tuple[str, str], str]:
    return ranks.cells(regime)


def _ranks(regime: str, point: str) -> str:
    return ranks.mark_of(_outcomes(regime)[point, regime])
