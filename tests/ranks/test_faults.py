"""Test that an error on one rank is raised on all ranks."""

from __future__ import annotations

import pytest

from tests.support.ranks.faults import PROGRAMS
from tests.support.ranks.launch import torchrun


@pytest.mark.ranks
def test_all_ranks_hear_of_it():
    printed = torchrun("tests.support.ranks.faults", 2)
    assert {f"rank {rank}: {name}" for rank in (0, 1) for name in PROGRAMS} <= set(printed.splitlines())
