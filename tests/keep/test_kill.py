"""Test that a run that is killed again and again has the same result. `scripts/kill` does it two thousand times."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs


SCRIPT = Path(__file__).parents[2] / "scripts" / "kill"


def test_a_killed_run_ends_as_if_nothing_had_happened():
    """Run in a separate process that has run nothing before it forks."""
    done = subprocess.run([sys.executable, SCRIPT, "15", "20"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) kills .* in (\d+) runs, (\d+) differences$", done.stdout)
    assert found, done.stdout
    kills, runs, different = map(int, found.groups())
    assert kills >= 15 and runs >= 1 and different == 0
