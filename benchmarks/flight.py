"""Measure the cost of watching a training: `th.flight`, and what `tenterhook run` attaches by default.

python -m benchmarks.flight               # the two sizes; prints a table for each
python -m benchmarks.flight 0.33M         # only this size
python -m benchmarks.flight --write       # also writes the tables into docs/benchmarks.md

The method is that of benchmarks.record. Some hooks fire in one step in ten, so the table shows means.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

import tenterhook as th
from benchmarks.gpt import SIZES, Size, Training
from benchmarks.record import PAGE, Step, bare, measure
from tenterhook.adapters.auto_attach import default_plan
from tenterhook.verdict import watch_training

ROUNDS = {"0.33M": 300, "26M": 100}
#: number of steps in which the memory is measured
STEPS = 16
BEGIN, END = "<!-- flight -->", "<!-- end of flight -->"


def watched_only(size: Size) -> Step:
    """Watch the training without a plan."""
    training = Training(size)
    rig = th.attach(training.model, [], optimizer=training.optimizer)
    watch_training(rig, [training.optimizer])
    return training.step


def flight(size: Size) -> Step:
    training = Training(size)
    th.flight(training.model, training.optimizer, tempfile.mkdtemp())
    return training.step


def default_run(size: Size) -> Step:
    """Attach what `tenterhook run` attaches."""
    training = Training(size)
    folder = Path(tempfile.mkdtemp())
    sinks = [th.Store(folder), th.Flight(folder / "flights")]
    rig = th.attach(training.model, default_plan(), optimizer=training.optimizer, sinks=sinks)
    watch_training(rig, [training.optimizer])
    return training.step


VARIANTS: dict[str, Callable[[Size], Step]] = {
    "bare": bare,
    "bare, again": bare,
    "watching without a plan": watched_only,
    "`th.flight`": flight,
    "`tenterhook run`": default_run,
}


def peak(what: str, name: str) -> float:
    """Return the largest number of MiB that a process with this variant needs."""
    command = [sys.executable, "-m", "benchmarks.flight", name, "--peak", what]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def table(name: str, rounds: int) -> str:
    size = SIZES[name]
    times = measure(name, size, VARIANTS, rounds)
    bare = {turn: (one[0] + times["bare, again"][turn][0]) / 2 for turn, one in times["bare"].items()}
    step = statistics.fmean(bare.values())
    lines = [
        f"A step of the {name} model without hooks takes {step * 1e3:.0f} ms.",
        "",
        "| variant | relative to bare | extra (ms) | peak memory (MiB) |",
        "|---|---|---|---|",
    ]
    least = peak("bare", name)
    for what, taken in times.items():
        extra = statistics.fmean(whole - bare[turn] for turn, (whole, _) in taken.items())
        more = peak(what, name) - least
        lines.append(f"| {what} | {1 + extra / step:.3f} | {extra * 1e3:.2f} | {more:+.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=list(ROUNDS))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--peak", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.peak:
        step = VARIANTS[options.peak](SIZES[options.sizes[0]])
        for _ in range(STEPS):
            step()
        # `ru_maxrss` begins with the size of the process that started this one.
        status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        print(int(status["VmHWM"].split()[0]) / 1024)
        return
    tables = []
    for name in options.sizes:
        tables.append(table(name, options.rounds or ROUNDS[name]))
        print(tables[-1], flush=True)
    if options.write:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(head + BEGIN + "\n\n" + "\n\n".join(tables) + "\n\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
