"""Run test programs on several real processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.support.warm_python import RANKS, warm_python

ROOT = Path(__file__).parents[3]


#: the parts of a line that gloo of torch 2.10 prints in each process, one after the other
_GLOO = re.compile(r"\[Gloo\] Rank | is connected to | peer ranks\. | ?Expected number of connected peer ranks is : ")


def without_gloo(printed: str) -> str:
    """Return what programs printed without the lines of gloo. Those of several ranks may be mixed."""
    if "[Gloo]" not in printed:
        return printed
    return "".join(f"{line}\n" for line in _GLOO.sub("", printed).splitlines() if line.strip(" 0123456789"))


def torchrun(program: str, ranks: int, *arguments: str, timeout: float = 240, python: str | None = None) -> str:
    """Run `python -m program` on several ranks, assert that it succeeds, and return what all ranks printed."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [python or warm_python(*RANKS), *launcher, "-m", program, *arguments]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/src", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return without_gloo(done.stdout)


def run_patiently(command: list[str], *, made: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program that other people could have written, and once more if it hangs on several ranks.

    With torch 2.13, such a program may deadlock at its end, also without tenterhook; see `leave`. The second run would
    resume what the first one recorded, so the folder `made` is removed.
    """
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    except subprocess.TimeoutExpired:
        if "torch.distributed.run" not in command:
            raise
    shutil.rmtree(made, ignore_errors=True)
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def run_programs(programs: Mapping[str, Callable[[int], None]]) -> None:
    """Run each program on every rank, one after the other, and print which ones have ended."""
    dist.init_process_group("gloo")
    for name, program in programs.items():
        program(dist.get_rank())
        dist.barrier()
        print(f"rank {dist.get_rank()}: {name}\n", end="", flush=True)
    leave()


def leave() -> None:
    """Exit a rank at once, without freeing objects.

    With torch 2.13, freeing a DDP module after its process group may deadlock: gloo's thread and the main thread wait
    for each other's lock.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
