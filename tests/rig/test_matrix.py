"""Tests each cell of the matrix."""

from pathlib import Path

import pytest

from tenterhook.plan import POINTS
from tests.support.matrix_page import differences, on_page
from tests.support.rig.matrix import MARKS, check
from tests.support.rig.regimes import REGIMES

PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"


@pytest.mark.slice(2)
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("point", POINTS)
def test_cell(point: str, regime: str) -> None:
    assert on_page("eager")[regime, point] == MARKS[check(point, regime).word], "run scripts/matrix"


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("column", ["torch.compile(model)", "block.compile()", "compiled checkpoints"])
@pytest.mark.parametrize("point", ["input", "output", "grad_output"])
def test_compiled_cell(point: str, column: str) -> None:
    """Run some compiled cells; `scripts/matrix` runs all of them."""
    assert on_page("compiled")[column, point] == MARKS[check(point, column).word], "run scripts/matrix"


def test_the_page_counts_its_cells() -> None:
    cells = list(on_page("eager").values())
    exact, refused, unaffected = (cells.count(MARKS[word]) for word in ("exact", "refused", "unaffected"))
    assert refused * 5 <= exact + refused
    counted = f"{len(cells)} cells: {exact} exact, {refused} refused, {unaffected} unaffected, 0 silent, 0 skipped."
    assert len(cells) == len(REGIMES) * len(POINTS) and counted in PAGE.read_text(), "run scripts/matrix"


def test_a_cell_that_differs_from_the_page_or_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(point: str, regime: str) -> str:
        if regime == "eager" and point == "grad":
            raise AssertionError("2 signals by hand, 1 by tenterhook\nmore")
        return "exact" if regime == "no optimizer" else on_page("eager")[regime, point]

    monkeypatch.setattr("tests.support.matrix_page._alone", compute)
    assert list(differences("eager")) == [
        "eager, grad: AssertionError: 2 signals by hand, 1 by tenterhook instead of exact",
        *(f"no optimizer, {point}: exact instead of **refused**" for point in POINTS
          if on_page("eager")["no optimizer", point] == "**refused**"),
    ]  # fmt: skip
