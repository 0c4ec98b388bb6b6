"""Test a part of the matrix of transitions. `scripts/matrix` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.random_programs.execution import execute
from tests.support.random_programs.transitions import MARKS, POINTS, TRANSITIONS, WAYS, programs

PAGE = (Path(__file__).parents[2] / "docs" / "matrix.md").read_text().partition("## Transitions")[2]
EAGER = [transition for transition in TRANSITIONS if transition != "compiled later"]


def on_page(transition: str, via: str) -> list[str]:
    """Return the cells of a row of the page, in the order of the points."""
    name = transition if via == "root" else f"{transition}; {WAYS[via]}"
    row = next((line for line in PAGE.splitlines() if line.startswith(f"| {name} |")), None)
    assert row is not None, "run scripts/matrix"
    return row.strip("| ").split(" | ")[1:]


@pytest.mark.slice(4)
@pytest.mark.parametrize("via", WAYS)
@pytest.mark.parametrize("transition", EAGER)
def test_cells(transition: str, via: str) -> None:
    for point, word in zip(POINTS, on_page(transition, via), strict=True):
        for program in programs(transition, point, via)[::3]:
            outcome = execute(program)
            assert outcome.kind == "exact" or MARKS[outcome.kind] == word, f"{point}: {outcome.detail}\n{program}"


@pytest.mark.compiled
@pytest.mark.parametrize("via", WAYS)
def test_a_model_that_is_compiled_later(via: str) -> None:
    assert on_page("compiled later", via) == ["exact"] * len(POINTS)
    assert execute(programs("compiled later", "output", via)[1]).kind == "exact"


def test_no_cell_is_silent() -> None:
    assert "**silent**" not in PAGE
    assert len(TRANSITIONS) >= 24
