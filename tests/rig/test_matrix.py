"""One test for each cell of the matrix."""

from pathlib import Path

import pytest

from tenterhook.plan import POINTS
from tests.rig.matrix import check, table
from tests.rig.regimes import REGIMES


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("point", POINTS)
def test_cell(point: str, regime: str) -> None:
    check(point, regime)


def test_the_page_says_what_ran() -> None:
    outcomes = {(p, r): check(p, r) for p in POINTS for r in REGIMES}
    affected = [o for o in outcomes.values() if o.word != "unaffected"]
    assert sum(o.word == "refused" for o in affected) * 5 <= len(affected)
    page = Path(__file__).parents[2] / "docs" / "matrix.md"
    assert page.read_text().startswith(table(outcomes)), "run scripts/matrix"
