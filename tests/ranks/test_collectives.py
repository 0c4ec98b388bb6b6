"""Test that a step needs two collectives for all observers together, and none if no hook is due."""

from __future__ import annotations

import pytest

from tests.support.ranks.collectives import CASES
from tests.support.ranks.launch import torchrun


@pytest.mark.ranks
def test_what_a_step_takes():
    printed = torchrun("tests.support.ranks.collectives", 2)
    for name, (_, _, _, wanted) in CASES.items():
        for rank in (0, 1):
            assert f"rank {rank}: {name}: {wanted}, expected {wanted}" in printed
