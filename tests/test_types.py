"""Test that mypy and pyright accept every right use of the API, and report every wrong one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import needs

ROOT = Path(__file__).parents[1]
USES = ROOT / "tests" / "support" / "types" / "uses.py"
LINES = USES.read_text().splitlines()
WRONG = {number for number, line in enumerate(LINES, 1) if line.endswith("# wrong")}


def by_mypy(folder: Path) -> set[int]:
    needs("mypy")
    # From the root, mypy uses the settings and the cache of the project.
    done = subprocess.run([sys.executable, "-m", "mypy", USES], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}


def by_pyright(folder: Path) -> set[int]:
    needs("pyright")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, USES]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


@pytest.mark.programs
@pytest.mark.parametrize("checker", [by_mypy, by_pyright])
def test_every_use_is_judged_correctly(checker, tmp_path: Path) -> None:
    found = checker(tmp_path)
    assert [LINES[number - 1] for number in sorted(found - WRONG)] == [], "right, but reported"
    assert [LINES[number - 1] for number in sorted(WRONG - found)] == [], "wrong, but accepted"


def test_there_are_enough() -> None:
    calls = {n for n, line in enumerate(LINES, 1) if "(" in line and not line.startswith((" ", "@", "#", "def"))}
    assert len(WRONG) >= 40 and len(calls - WRONG) >= 40
