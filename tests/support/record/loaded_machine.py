"""Record runs on a machine that has too much to do, end them in every way, and compare the files with what was emitted.

Each run is a process that trains and announces each finished step. Some runs have a slow disk, some are ended by
SIGTERM at a random moment, some end without `detach`. A row of an announced step is in the files, or a warning counts
it.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tenterhook as th

ROOT = Path(__file__).resolve().parents[3]
#: 4 parameters with 6 statistics each
ROWS = 24

PROGRAM = """
import os, sys, time
folder, slow, end, steps = sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
import torch
from torch import nn
import tenterhook as th

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hook = th.Hook("s", on="**", at="grad_final", do=th.stats())
rig = th.attach(model, hook, optimizer=optimizer, sinks=th.Store(folder, linger=0.2))
sync = os.fsync
if slow:
    os.fsync = lambda descriptor: (time.sleep(slow), sync(descriptor))
for step in range(steps):
    optimizer.zero_grad()
    model(torch.randn(5, 3)).square().mean().backward()
    optimizer.step()
    os.write(1, f"{step}\\n".encode())
    time.sleep(0.01)
if end == "detach":
    rig.detach()
    (worker,) = rig._recorder.workers
    os.write(1, f"counts {worker.emitted} {worker.written} {worker.dropped} {worker.waiting}\\n".encode())
"""


@dataclass(frozen=True)
class Outcome:
    """How one run ended, and what was wrong with it, if anything."""

    about: str
    announced: int
    rows: int
    lost: int
    fault: str | None


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many other processes runnable. They end with this process."""
    burn = f"import os\nwhile os.getppid() == {os.getpid()}:\n    sum(range(10**6))"
    burning = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in burning:
            one.kill()
            one.wait()


def run(seed: int, *, slow: float = 3.0) -> Outcome:
    """Run one program, and compare its run folder with the steps that it announced."""
    chance = random.Random(seed)
    end = ("detach", "exit", "sigterm")[seed % 3]
    delay = slow if chance.random() < 0.5 else 0.0
    steps = chance.randint(1, 60) if end != "sigterm" else 100_000
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-c", PROGRAM, f"{place}/run", str(delay), end, str(steps)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        if end == "sigterm":
            process.stdout.readline()
            time.sleep(chance.random() * 3)
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=600)
        return _judge(f"seed {seed}: {end}, disk {delay:g} s", Path(place) / "run", out, err, process.returncode, end)


def _judge(about: str, folder: Path, out: str, err: str, code: int, end: str) -> Outcome:
    announced = len(re.findall(r"^\d+$", out, re.MULTILINE)) + (end == "sigterm")  # the first line was read before
    steps = _steps(folder)
    rows = sum(steps.values())
    lost = sum(map(int, re.findall(r"(\d+) were dropped", err)))
    waiting = [int(a or b) for a, b in re.findall(r"(\d+) rows are still waiting|(\d+) are still being written", err)]
    fault = None
    expected = -signal.SIGTERM if end == "sigterm" else 0
    counts = re.search(r"counts (\d+) (\d+) (\d+) (\d+)", out)
    if code != expected:
        fault = f"exit code {code}: {err[-500:]}"
    elif any(count != ROWS for count in steps.values()):
        fault = f"a step is incomplete: {steps}"
    elif rows + lost + sum(waiting) < announced * ROWS:
        fault = f"{announced} steps were finished, {rows} rows are in the files, {lost} were reported: {err[-500:]}"
    elif counts is not None and (int(counts[2]) != rows or int(counts[1]) != rows + int(counts[3]) + int(counts[4])):
        fault = f"{rows} rows are in the files, but the counts are {counts[0]}"
    return Outcome(about, announced, rows, lost + sum(waiting), fault)


def _steps(folder: Path) -> Counter[int]:
    """Return the number of rows of each step in a run folder."""
    try:
        return Counter(row[0] for row in th.open_run(folder).fetch("select step from rows"))
    except th.StoreError:
        return Counter()
