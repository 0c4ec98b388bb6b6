"""Measure what observing a compiled model adds to its step.

python -m benchmarks.compiled [ROUNDS]

The hooks run `stats` on the output of every block and on every final gradient, in every tenth step. The same model
without hooks is the baseline. Both are compiled as one graph, and their steps alternate. Times are CPU times of the
thread. A round has ten steps; the result adds up the median time of each of the ten steps over all rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch._dynamo.utils import counters

import tenterhook as th
from benchmarks.gpt import SIZES, Training

EVERY = 10
MEASURED = ("0.33M", "5M", "26M")


def plan(*, every: int) -> th.Plan:
    when = th.When(every=every)
    return th.Plan([
        th.Hook("outputs", on="blocks.*", at="output", do=th.stats(), when=when),
        th.Hook("gradients", on="**", at="grad_final", do=th.stats(), when=when),
    ])  # fmt: skip


def trainer(size: str, hooks: th.Plan | None) -> tuple[Callable[[], object], th.Rig | None]:
    training = Training(SIZES[size])
    training.model.compile(fullgraph=True)
    rig = th.attach(training.model, hooks, optimizer=training.optimizer) if hooks is not None else None
    return training.step, rig


def seconds(step: Callable[[], object]) -> float:
    start = time.thread_time()
    step()
    return time.thread_time() - start


def measure(size: str, rounds: int) -> None:
    torch._dynamo.reset()
    runs = {
        "bare": trainer(size, None),
        "due in every 10th step": trainer(size, plan(every=EVERY)),
        "never due": trainer(size, plan(every=10**9)),
    }
    for _ in range(2 * EVERY):
        for step, _ in runs.values():
            step()
    counters.clear()
    times: dict[str, list[list[float]]] = {name: [[] for _ in range(EVERY)] for name in runs}
    for turn in range(rounds * EVERY):
        for name in runs if turn % 2 else reversed(runs):
            times[name][turn % EVERY].append(seconds(runs[name][0]))
    again = counters["stats"]["unique_graphs"]
    assert not again, f"{again} graphs were compiled during the measurement"
    sums = {name: sum(map(statistics.median, places)) for name, places in times.items()}
    print(f"{size}: bare {sums['bare'] / EVERY * 1e3:.1f} ms per step")
    for name in list(runs)[1:]:
        print(f"  {name}: {sums[name] / sums['bare']:.3f}x")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="?", type=int, default=15)
    parser.add_argument("--sizes", nargs="*", default=list(MEASURED), choices=list(MEASURED))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for size in given.sizes:
        measure(size, given.rounds)
