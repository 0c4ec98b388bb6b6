"""Test a part of the matrix on several ranks. `scripts/matrix` runs all of it."""

from __future__ import annotations

import pytest

from tests.support.ranks.launch import ROOT
from tests.support.ranks.table import cells, row

TWO = ("DDP, bucket views, no_sync", "FSDP2, attached before")


@pytest.mark.slice(2)
@pytest.mark.ranks
@pytest.mark.parametrize("regimes", [TWO, ("FSDP2 x TP",)], ids=["two", "four"])
def test_the_page_says_what_ran(regimes: tuple[str, ...]):
    outcomes = cells(*regimes)
    page = (ROOT / "docs" / "matrix.md").read_text()
    for regime in regimes:
        assert row(regime, outcomes) in page, "run scripts/matrix"
