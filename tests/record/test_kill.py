"""Run a part of `scripts/kill-recording`: after a recording process is killed, no acknowledged row is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs


SCRIPT = Path(__file__).parents[2] / "scripts" / "kill-recording"


def test_no_acknowledged_row_is_lost_duplicated_or_wrong():
    done = subprocess.run([sys.executable, SCRIPT, "25", "1"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 kills" in done.stdout
    assert "0 with a fault" in done.stdout
