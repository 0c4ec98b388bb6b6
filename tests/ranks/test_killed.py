"""Test a part of `scripts/kill-ranks`: a rank is killed, torchrun restarts all ranks, and the run loses nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.ranks.launch import ROOT


@pytest.mark.ranks
def test_killed_ranks_go_on_where_they_were():
    command = [sys.executable, str(ROOT / "scripts" / "kill-ranks"), "8", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong, 0 hung" in done.stdout
