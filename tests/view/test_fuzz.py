"""Run a part of `scripts/fuzz-view`: no request makes the server fail, or shows a run without the token."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import needs

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz-view"


@pytest.mark.programs
def test_odd_requests_are_refused_or_answered() -> None:
    for package in ("duckdb", "numpy", "starlette", "uvicorn"):
        needs(package)
    command = [sys.executable, SCRIPT, "400", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.stdout.endswith("\n0 kinds of faults\n"), done.stdout + done.stderr
    assert done.returncode == 0
