"""Test that rows that are the same on all ranks are written once, and that a trip counts on all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ranks.launch import torchrun


@pytest.mark.ranks
def test_trips_and_rows(tmp_path: Path):
    printed = torchrun("tests.support.ranks.recording", 2, str(tmp_path))
    assert all(f"rank {rank}: done" in printed for rank in (0, 1))
