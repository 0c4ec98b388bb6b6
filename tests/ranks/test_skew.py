"""Test that `th.skew` names the ranks with the lowest and the highest number."""

from __future__ import annotations

import pytest

from tests.support.ranks.launch import torchrun
from tests.support.ranks.skew import PROGRAMS


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [2, 3])
def test_programs(ranks: int) -> None:
    said = torchrun("tests.support.ranks.skew", ranks).splitlines()
    assert sorted(said) == sorted(f"rank {rank}: {one.__name__}" for rank in range(ranks) for one in PROGRAMS)
