"""Run a few of the programs of scripts/verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slices import sliced

PROGRAMS = Path(__file__).parents[1] / "verdict_programs"


def verdict(script: Path, folder: Path, fault: dict[str, object] | None = None) -> dict[str, object] | None:
    """Run a program with `tenterhook run`, and return its first verdict."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | ({"FAULT": json.dumps(fault)} if fault else {})
    command = [sys.executable, "-m", "tenterhook", "run", "--quiet", "--json", folder / "out.json", "--out", folder]
    done = subprocess.run([*command, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out.json").read_text())["verdict"]


@pytest.mark.parametrize(
    ("family", "fault", "code", "step", "target"),
    [
        ("cnn_bn", {"kind": "lr_jump", "step": 60, "layer": "", "seed": 3}, "TH805", 60, ""),
        ("deep_mlp", {"kind": "fwd_log", "step": 70, "layer": "layers.3", "seed": 3}, "TH801", 70, "layers.3"),
    ],
)
def test_a_planted_fault_is_named(family: str, fault: dict[str, object], code: str, step: int, target: str, tmp_path):
    found = verdict(PROGRAMS / "planted" / "families" / f"{family}.py", tmp_path, fault)
    assert found is not None and (found["code"], found["step"], found["target"]) == (code, step, target)


@pytest.mark.parametrize("name", sliced(["hinge_separable", "label_noise"], 2))
def test_a_healthy_program_has_no_verdict(name: str, tmp_path: Path):
    assert verdict(PROGRAMS / "healthy" / "scripts" / f"{name}.py", tmp_path) is None


def test_steps_that_run_again_change_nothing():
    """Run every seventh step of one program again, and compare each step with that of the bare program."""
    command = [sys.executable, PROGRAMS / "examined" / "score.py", "--only", "mlp_relu"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "22 steps ran again, 22 of them with the same values" in done.stdout
