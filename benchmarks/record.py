"""Measure the cost of statistics of every gradient in every step, compared with one read and with other tools.

python -m benchmarks.record               # all sizes; prints a table for each size
python -m benchmarks.record 0.33M 26M     # only these sizes
python -m benchmarks.record --write       # also writes the tables into docs/benchmarks.md

docs/benchmarks.md describes the method.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tenterhook as th
from benchmarks.gpt import AFTER_BACKWARD, SIZES, Size, Training

ROUNDS = {"0.33M": 240, "5M": 80, "26M": 48, "MoE 64x4": 60}
#: the expensive variants run only in every SELDOM-th round
SELDOM = 4
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
Step = Callable[[], object]
#: seconds of the single read, measured inside a step, so that the caches are in the same state as after a backward pass
ONE_READ: list[float] = []


def bare(size: Size) -> Step:
    return Training(size).step


def limit(size: Size) -> Step:
    """Read every gradient once, with one PyTorch function."""
    training = Training(size)
    parameters = list(training.model.parameters())

    def read() -> None:
        start = time.thread_time()
        torch._foreach_norm([p.grad for p in parameters if p.grad is not None])
        ONE_READ.append(time.thread_time() - start)

    return lambda: training.step(read)


def ours(*actions: Any, every: int = 1, sinks: Any = ()) -> Callable[[Size], Step]:
    def make(size: Size) -> Step:
        training = Training(size)
        hooks = [th.Hook(f"h{i}", on="**", at="grad_final", do=do, when=th.When(every=every))
                 for i, do in enumerate(actions)]  # fmt: skip
        th.attach(training.model, hooks, optimizer=training.optimizer, sinks=sinks() if callable(sinks) else sinks)
        return training.step

    return make


def naive(size: Size) -> Step:
    """Compute five statistics in a hook on each parameter, as users often do."""
    training, rows = Training(size), []

    def seen(parameter: Tensor) -> None:
        g = parameter.grad
        rows.append((g.norm().item(), g.mean().item(), g.abs().max().item(), (g == 0).float().mean().item(),
                     (~torch.isfinite(g)).sum().item()))  # fmt: skip

    for parameter in training.model.parameters():
        parameter.register_post_accumulate_grad_hook(seen)
    return lambda: training.step(after=rows.clear)


def lightning_norms(size: Size) -> Step:
    from lightning.pytorch.utilities import grad_norm

    training = Training(size)
    return lambda: training.step(lambda: grad_norm(training.model, norm_type=2))


def wandb_watch(size: Size) -> Step:
    import wandb

    training = Training(size)
    run = wandb.init(mode="offline", dir=tempfile.mkdtemp(), project="benchmark", reinit="finish_previous")
    run.watch(training.model, log="gradients", log_freq=1)
    return lambda: run.log({"loss": training.step().item()})


def torchlens_watch(size: Size) -> Step:
    from torchlens.trackers import MemorySink, watch

    training = Training(size)
    watch(training.model, to=MemorySink(), optimizer=training.optimizer, step=lambda: training.steps, every=1)
    return training.step


VARIANTS: dict[str, Callable[[Size], Step]] = {
    "bare": bare,
    "bare, again": bare,
    "limit: one `_foreach_norm`": limit,
    "tenterhook: stats": ours(th.stats()),
    "tenterhook: stats, every 10th step": ours(th.stats(), every=10),
    "tenterhook: stats and histogram": ours(th.stats(), th.histogram()),
    "tenterhook: stats into a store": ours(th.stats(), sinks=lambda: th.Store(tempfile.mkdtemp())),
    "Lightning grad_norm (norms only)": lightning_norms,
}
#: variants that also do work during the backward pass
ALL_ALONG = {
    "naive hooks, five statistics": naive,
    "wandb.watch, gradients": wandb_watch,
    "torchlens watch": torchlens_watch,
}
VARIANTS |= ALL_ALONG
Times = dict[str, dict[int, tuple[float, float]]]


def measure(name: str, size: Size, variants: dict[str, Callable[[Size], Step]], rounds: int) -> Times:
    """Return the CPU seconds of each round, for the whole step and for its part after the backward pass."""
    steps, failed = {}, {}
    for what, make in variants.items():
        try:
            steps[what] = make(size)
            steps[what](), steps[what]()
        except Exception as error:  # report another tool that cannot run here
            failed[what] = f"{type(error).__name__}: {error}"
            steps.pop(what, None)
    times: Times = {what: {} for what in steps}
    for turn in range(rounds):
        order = [what for what in steps if what not in ALL_ALONG or turn % SELDOM == 0]
        for what in order[turn % len(order) :] + order[: turn % len(order)]:
            start = time.thread_time()
            steps[what]()
            times[what][turn] = (time.thread_time() - start, AFTER_BACKWARD[-1])
    for what, why in failed.items():
        print(f"{what} did not run on {name}: {why}")
    return times


def table(name: str, size: Size, rounds: int, variants: dict[str, Callable[[Size], Step]] = VARIANTS) -> str:
    ONE_READ.clear()
    times = measure(name, size, variants, rounds)
    bare = {turn: [(a + b) / 2 for a, b in zip(one, times["bare, again"][turn], strict=True)]
            for turn, one in times["bare"].items()}  # fmt: skip
    one_read = statistics.median(ONE_READ)
    model = Training(size).model
    numbers = f"{sum(p.numel() for p in model.parameters()):,} parameters in {len(list(model.parameters()))} tensors"
    step = statistics.median(whole for whole, _ in bare.values())
    lines = [
        f"### {name}",
        "",
        f"The model has {numbers}, and a batch has {size.batch} x {size.length} tokens.",
        f"A step without hooks takes {step * 1e3:.0f} ms; reading all gradients once takes {one_read * 1e3:.2f} ms.",
        "",
        "| variant | relative to bare | quartiles | extra (ms) | bare plus extra | extra / one read |",
        "|---|---|---|---|---|---|",
    ]
    for what, taken in times.items():
        place = 0 if what in ALL_ALONG else 1
        ratios = [whole / bare[turn][0] for turn, (whole, _) in taken.items()]
        extra = [both[place] - bare[turn][place] for turn, both in taken.items()]
        low, mid, high = statistics.quantiles(ratios, n=4)
        # Only one step in ten is expensive. The median would not show the cost, so the mean is used.
        seldom = "10th" in what
        shown = sum(ratios) / len(ratios) if seldom else mid
        more = (statistics.fmean if seldom else statistics.median)(extra)
        lines.append(f"| {what} | {shown:.3f} | {low:.3f} to {high:.3f} | {more * 1e3:.2f} | "
                     f"{1 + more / step:.3f} | {more / one_read:.1f} |")  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=list(SIZES))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ |= {"WANDB_SILENT": "true"}
    torch.set_num_threads(1)
    tables = []
    for name in options.sizes:
        tables.append(table(name, SIZES[name], options.rounds or ROUNDS[name]))
        print(tables[-1], flush=True)
    if options.write:
        head = PAGE.read_text().split("<!-- tables -->")[0]
        PAGE.write_text(head + "<!-- tables -->\n\n" + "\n\n".join(tables) + "\n")


if __name__ == "__main__":
    main()
