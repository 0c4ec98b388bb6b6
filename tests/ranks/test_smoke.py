"""Two real processes: `grad_final` means the same under DDP and FSDP2, and the rest is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.ranks
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_ranks(kind):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
               str(Path(__file__).with_name("smoke.py")), kind]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=180, env=env)
    assert run.returncode == 0, run.stdout + run.stderr
    assert all(f"rank {r}: {kind} exact" in run.stdout for r in (0, 1))
