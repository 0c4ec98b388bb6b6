"""Run a part of `scripts/hostile-folders`: readers refuse hostile run folders properly, and read the innocent ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import needs
from tests.support.record.hostile_folders import cases

pytestmark = pytest.mark.programs


SCRIPT = Path(__file__).parents[2] / "scripts" / "hostile-folders"


def test_there_are_at_least_500_cases_with_unique_names() -> None:
    names = [case.name for case in cases()]
    assert len(names) >= 500
    assert len(set(names)) == len(names)
    assert [case.name for case in cases()] == names


def test_a_slice_of_the_folders_is_refused_or_read() -> None:
    for package in ("duckdb", "numpy", "pandas", "starlette"):
        needs(package)
    every = len(cases()) // 12
    command = [sys.executable, SCRIPT, "--every", str(every), "--without", "size: "]  # large folders take seconds
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" folders, 0 failures\n")
