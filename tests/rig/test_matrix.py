"""Tests each cell of the matrix."""

from pathlib import Path

import pytest

from tenterhook.plan import POINTS
from tests.support.rig.matrix import MARKS, check
from tests.support.rig.regimes import REGIMES

PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"


def on_page(point: str, regime: str) -> str:
    """Return a cell of the page."""
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {regime} |"))
    return row.strip("| ").split(" | ")[1 + list(POINTS).index(point)]


@pytest.mark.slice(2)
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("point", POINTS)
def test_cell(point: str, regime: str) -> None:
    assert on_page(point, regime) == MARKS[check(point, regime).word], "run scripts/matrix"


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("column", ["torch.compile(model)", "block.compile()", "compiled checkpoints"])
@pytest.mark.parametrize("point", ["output", "grad_output"])
def test_compiled_cell(point: str, column: str) -> None:
    """Run some compiled cells; `scripts/matrix` runs all of them."""
    assert on_page(point, column) == MARKS[check(point, column).word], "run scripts/matrix"


def test_the_page_counts_its_cells() -> None:
    cells = [on_page(point, regime) for regime in REGIMES for point in POINTS]
    exact, refused, unaffected = (cells.count(MARKS[word]) for word in ("exact", "refused", "unaffected"))
    assert refused * 5 <= exact + refused
    counted = f"{len(cells)} cells: {exact} exact, {refused} refused, {unaffected} unaffected, 0 silent, 0 skipped."
    assert counted in PAGE.read_text(), "run scripts/matrix"
