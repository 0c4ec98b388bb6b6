"""Run an unmodified script with and without `tenterhook run`, and compare the results."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tenterhook as th
from tests.support.docs.run_page import without_gloo
from tests.support.ranks.launch import run_patiently

SCRIPTS = sorted((Path(__file__).parents[2] / "adapters" / "scripts").glob("*.py"))
RANKS = {"ddp": 2, "fsdp2": 2}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold the results of one script with and without `tenterhook run`."""

    bare: str
    watched: str
    code: int
    said: str
    #: the runs by the names of their folders
    runs: dict[str, th.Run]
    #: size of the report in bytes
    report: int

    @property
    def losses(self) -> int:
        return sum("loss" in line.lower() for line in self.bare.splitlines())

    @property
    def errors(self) -> list[str]:
        """Return the codes of the findings of severity error."""
        return [f["code"] for run in self.runs.values() for f in run.findings if f["severity"] == "error"]


def starts(name: str, python: str) -> list[str]:
    """Return the beginning of the command that starts a script, on several ranks if it needs them."""
    ranks = RANKS.get(name)
    return [python] + (["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks else [])


def run(command: list[str], place: Path, out: str) -> subprocess.CompletedProcess[str]:
    (place / out).mkdir()
    env = {**os.environ, "SCRIPT_OUT": str(place / out), "OMP_NUM_THREADS": "1"}
    return run_patiently(command, made=place / "runs", cwd=place, env=env)


def compare(script: Path, place: Path, python: str = sys.executable) -> Outcome:
    start = starts(script.stem, python)
    bare = run([*start, str(script)], place, "bare")
    assert bare.returncode == 0, bare.stderr
    watched = run([*start, "-m", "tenterhook", "run", "--out", "runs", str(script)], place, "watched")
    made = subprocess.run(
        [python, "-m", "tenterhook", "report", "runs"], cwd=place, capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, watched.stderr + made.stderr
    folders = sorted(path.parent for path in (place / "runs").glob("*/plan.json"))
    return Outcome(
        without_gloo(bare.stdout), without_gloo(watched.stdout), watched.returncode, watched.stderr,
        {path.name: th.open_run(path) for path in folders}, (place / "runs" / "report.html").stat().st_size,
    )  # fmt: skip
