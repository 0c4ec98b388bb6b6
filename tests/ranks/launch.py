"""Programs on several real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HOUSE = Path(__file__).parents[2]


def torchrun(program: str, ranks: int, *arguments: str, timeout: float = 240, options: tuple[str, ...] = ()) -> str:
    """What `python -m program` prints on all ranks together; it must end well."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *options,
               "-m", program, *arguments]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": f"{HOUSE}:{HOUSE}/src", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=HOUSE, env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


def leave() -> None:
    """End a rank at once. When a DDP is freed after its process group, gloo's thread and the main one may wait for each
    other for ever (torch 2.13: one holds the interpreter's lock, the other wants it)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
