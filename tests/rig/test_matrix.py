"""Tests each cell of the matrix."""

from pathlib import Path

import pytest

from tenterhook.plan import POINTS
from tests.support.rig.matrix import MARKS, check, table
from tests.support.rig.regimes import REGIMES


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("point", POINTS)
def test_cell(point: str, regime: str) -> None:
    check(point, regime)


PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("column", ["torch.compile(model)", "block.compile()", "compiled checkpoints"])
@pytest.mark.parametrize("point", ["output", "grad_output"])
def test_compiled_cell(point: str, column: str) -> None:
    """Run some compiled cells; `scripts/matrix` runs all of them."""
    word = check(point, column).word
    cells = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {column} |")).split(" | ")
    assert cells[1 + list(POINTS).index(point)] == MARKS[word], "run scripts/matrix"


def test_the_page_says_what_ran() -> None:
    outcomes = {(p, r): check(p, r) for p in POINTS for r in REGIMES}
    affected = [o for o in outcomes.values() if o.word != "unaffected"]
    assert sum(o.word == "refused" for o in affected) * 5 <= len(affected)
    assert PAGE.read_text().startswith(table(outcomes)), "run scripts/matrix"
