"""Test `scripts/gpu-truth` without a GPU: it refuses, and its parts run on the CPU and on the simulated device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.earlier_torch import since

ROOT = Path(__file__).parents[2]
#: runs the part `steps` with actions that read from the device
PLANTED = """
from tests.support.devices import simulated, truth

def read(x):
    x.sum().item()

simulated.register()
truth.ACTIONS.update(dict.fromkeys(truth.ACTIONS, lambda device: read))
with simulated.OnSimulatedDevice():
    print(*truth.steps("simulated", few=True), sep="\\n")
"""


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "gpu-truth", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_refuses_and_says_what_to_do(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = run("--out", str(page))
    assert done.returncode == 1 and not page.exists()
    assert done.stderr == (
        f"scripts/gpu-truth: torch {torch.__version__} finds no device 'cuda' on this machine\n"
        "  remedy: install a build of torch for the GPU, from https://pytorch.org, or rehearse without a GPU: "
        "scripts/gpu-truth --device cpu --few\n"
    )


@pytest.mark.programs
def test_all_parts_run_on_the_cpu(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = run("--device", "cpu", "--few", "--out", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert f"(`cpu`), torch {torch.__version__}" in text
    assert "\n8 cells, 0 failed.\n" in text and "\n5 trainings of four steps, 0 in which a step waited" in text
    assert "| th.flight |" in text and "µs per site" in text and "| tenterhook: stats |" in text


@since(13, "registers a device that is written in Python in another way, or not at all")
@pytest.mark.programs
def test_the_matrix_and_the_steps_run_on_the_simulated_device(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = run("--device", "simulated", "--few", "--part", "matrix", "--part", "steps", "--out", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "\n8 cells, 0 failed.\n" in text and "\n5 trainings of four steps, 0 in which a step waited" in text


@since(13, "registers a device that is written in Python in another way, or not at all")
@pytest.mark.programs
def test_a_step_that_waits_is_on_the_page() -> None:
    done = subprocess.run([sys.executable, "-c", PLANTED], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "5 trainings of four steps, 4 in which a step waited" in done.stdout
    assert "waits: host read: aten._local_scalar_dense.default in rig/" in done.stdout
