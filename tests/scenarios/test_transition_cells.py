"""Test a part of the matrix of transitions. `scripts/matrix` runs all of it."""

from __future__ import annotations

import pytest

from tests.support.matrix_page import on_page
from tests.support.random_programs.execution import execute
from tests.support.random_programs.transitions import MARKS, POINTS, TRANSITIONS, WAYS, programs, row_name

EAGER = [transition for transition in TRANSITIONS if transition != "compiled later"]


@pytest.mark.slice(4)
@pytest.mark.parametrize("via", WAYS)
@pytest.mark.parametrize("transition", EAGER)
def test_cells(transition: str, via: str) -> None:
    for point in POINTS:
        mark = on_page("transitions")[row_name(transition, via), point]
        for program in programs(transition, point, via)[::3]:
            outcome = execute(program)
            assert outcome.kind == "exact" or MARKS[outcome.kind] == mark, f"{point}: {outcome.detail}\n{program}"


@pytest.mark.compiled
@pytest.mark.parametrize("via", WAYS)
def test_a_model_that_is_compiled_later(via: str) -> None:
    assert all(on_page("transitions")[row_name("compiled later", via), point] == "exact" for point in POINTS)
    assert execute(programs("compiled later", "output", via)[1]).kind == "exact"


def test_no_cell_is_silent() -> None:
    assert "**silent**" not in on_page("transitions").values()
    assert len(TRANSITIONS) >= 24
