"""Measure how the cost of recording grows with the number of sites, elements and steps.

python -m benchmarks.growth             # time per site and per element; memory after 10^3, 10^4 and 10^5 steps
python -m benchmarks.growth --steps 0   # without the memory, which takes minutes
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import tenterhook as th

SITES = (100, 1_000, 10_000, 45_000)
ELEMENTS = (2**20, 2**22, 2**24, 2**26)


def extra(sites: int, elements: int, rounds: int) -> float:
    """Return the CPU seconds that statistics of all gradients add to a step."""
    torch.manual_seed(0)
    model = nn.ParameterList(nn.Parameter(torch.randn(elements // sites)) for _ in range(sites))
    for parameter in model:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, foreach=True)

    def seconds() -> float:
        start = time.thread_time()
        optimizer.step()
        return time.thread_time() - start

    bare = [seconds() for _ in range(rounds)]
    with th.attach(model, [th.Hook("s", on="**", at="grad_final", do=th.stats())], optimizer=optimizer):
        seconds(), seconds()
        hooked = [seconds() for _ in range(rounds)]
    return statistics.median(hooked) - statistics.median(bare)


def resident() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def memory(steps: int) -> dict[int, float]:
    """Return the MiB of the process after some numbers of steps that write to a store and a flight recorder."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    plan = [
        th.Hook("s", on="**", at="grad_final", do=th.stats()),
        th.Hook("k", on="**", at="grad_final", do=th.spike()),
    ]
    marks, x = {}, torch.ones(2, 8)
    sinks = [th.Store(tempfile.mkdtemp()), th.Flight(tempfile.mkdtemp())]
    with th.attach(model, plan, optimizer=optimizer, sinks=sinks) as rig:
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            if step in (1_000, 10_000, 100_000):
                rig.flush(60.0)
                marks[step] = resident()
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    first = None
    for sites in SITES:
        took = extra(sites, sites * 64, rounds=9 if sites < 10_000 else 5)
        first = first or took / sites
        each = took / sites
        print(f"{sites:6} sites of 64 elements: {each * 1e6:6.2f} us per site, {each / first:.2f} times the first row")
    first = None
    for elements in ELEMENTS:
        took = extra(16, elements, rounds=7)
        first = first or took / elements
        print(f"{elements:9} elements in 16 sites: {took * 1e9 / elements:5.3f} ns per element, "
              f"{took / elements / first:.2f} times the first row")  # fmt: skip
    if options.steps:
        marks = memory(options.steps)
        print(", ".join(f"{mib:.1f} MiB after {step} steps" for step, mib in marks.items()))


if __name__ == "__main__":
    main()
