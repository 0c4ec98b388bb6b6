"""A training that is killed and resumed in a trainer ends with the same weights and the same state of every hook."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.warm_python import warm_python

pytestmark = pytest.mark.programs
ROOT = Path(__file__).parents[2]
PACKAGES = {"lightning": "lightning.pytorch", "transformers": "transformers.trainer", "accelerate": "accelerate"}


def run(trainer: str, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        warm_python("torch", PACKAGES[trainer]),
        "-m",
        f"tests.adapters.programs.{trainer}_program",
        str(out),
        *options,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


@pytest.mark.slice(3)
@pytest.mark.parametrize("trainer", ["lightning", "transformers", "accelerate"])
def test_it_ends_as_if_it_had_never_been_killed(trainer: str, tmp_path: Path):
    straight = run(trainer, tmp_path / "straight")
    assert straight.returncode == 0, straight.stderr
    killed = run(trainer, tmp_path / "killed", "--die-at", "10")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = run(trainer, tmp_path / "killed", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    told = straight.stdout.splitlines()[-1]
    assert told.startswith("14 14 ")
    assert resumed.stdout.splitlines()[-1] == told
