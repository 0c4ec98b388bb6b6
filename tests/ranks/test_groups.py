"""Test models that only some ranks have."""

from __future__ import annotations

import pytest

from tests.support.ranks.groups import PROGRAMS
from tests.support.ranks.launch import torchrun


@pytest.mark.ranks
def test_models_on_some_ranks():
    printed = torchrun("tests.support.ranks.groups", 4)
    assert {f"rank {rank}: {name}" for rank in range(4) for name in PROGRAMS} <= set(printed.splitlines())
