"""Count the objects that attaching and detaching leave behind. There must be none.

python benchmarks/cycles.py [100000]
"""

from __future__ import annotations

import gc
import resource
import sys
import time

import torch
from torch import nn

import tenterhook as th
from tenterhook.plan import POINTS


def nothing(value: object) -> None:
    return None


def net_objects(model: nn.Module, optimizer: torch.optim.Optimizer, *, cycles: int) -> int:
    """Return the number of objects that `cycles` rounds of attach and detach leave, as the garbage collector counts."""
    plan = th.Plan(th.Hook(p, on="**", at=p, do=nothing) for p in POINTS)

    def cycle() -> None:
        th.attach(model, plan, optimizer=optimizer).detach()

    for _ in range(20):
        cycle()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(cycles):
        cycle()
    gc.collect()
    return len(gc.get_objects()) - before


def main(cycles: int) -> int:
    model = nn.Sequential(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.thread_time()
    left = net_objects(model, optimizer, cycles=cycles)
    seconds = time.thread_time() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    each = seconds / cycles * 1e6
    print(f"{cycles} cycles with every point: {left} objects left, {grown} KiB more memory, {each:.0f} µs per cycle")
    return left


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
