"""Measure what auditing and following add to a step.

python -m benchmarks.audit               # GPT models; following with 1,000 and 10,000 parameters
python -m benchmarks.audit --steps 300   # more steps
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import tenterhook as th
from benchmarks.gpt import SIZES, Training
from tenterhook.audit.arrival_audit import ArrivalAudit
from tenterhook.audit.auditor import Auditor
from tenterhook.rig.model_sync import ModelSync

#: the functions of the auditor that run in every step, and those that run in some steps
EVERY_STEP = [(Auditor, "before_step"), (Auditor, "_gradients_handled"), (Auditor, "after_step")]
SAMPLED = [(Auditor, "look"), (ArrivalAudit, "mark"), (ArrivalAudit, "missed")]
#: in a long run, every 64th step is sampled
PERIOD = 64


class Stopwatch:
    """Adds up the time of functions, without the time of the functions that they call and that are measured too."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._inner = [0.0]

    def measure(self, owner: type, name: str, label: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def measured(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                found = function(*args, **kwargs)
                return list(found) if label == "sampled" and found is not None else found
            finally:
                took = time.perf_counter() - start
                self.seconds[label] += took - self._inner.pop()
                self.calls[label] += 1
                self._inner[-1] += took

        setattr(owner, name, measured)


def audit(name: str, steps: int) -> None:
    """Train a GPT model with hooks at five points, and print the shares of a step."""
    watch = Stopwatch()
    saved = [(owner, name, getattr(owner, name)) for owner, name in (*EVERY_STEP, *SAMPLED)]
    for owner, function in EVERY_STEP:
        watch.measure(owner, function, "every step")
    for owner, function in SAMPLED:
        watch.measure(owner, function, "sampled")
    torch.set_num_threads(1)
    training = Training(SIZES[name])
    hooks = [th.Hook(at, on="**", at=at, do=th.stats()) for at in ("grad", "grad_final", "update")]
    hooks += [th.Hook("outputs", on="blocks.*", at="output", do=th.stats())]
    hooks += [th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0))]
    rig = th.attach(training.model, hooks, optimizer=training.optimizer)
    for _ in range(PERIOD + 1):  # the first steps are sampled more often
        training.step()
    watch.seconds.clear()
    watch.calls.clear()
    start = time.perf_counter()
    for _ in range(steps):
        training.step()
    took = (time.perf_counter() - start) / steps
    rig.detach()
    every = watch.seconds["every step"] / steps
    sampled = watch.seconds["sampled"] / (steps / PERIOD)
    print(f"{name}: a step takes {took * 1e3:.2f} ms")
    print(f"  every step: {every * 1e6:.0f} us, {every / took:.2%} of a step")
    print(f"  a sampled step: {sampled * 1e6:.0f} us; on average {sampled / PERIOD / took:.2%} of a step")
    for owner, function, original in saved:
        setattr(owner, function, original)


def follow(count: int) -> None:
    """Print what following adds to a step of a model with many parameters that does not change."""
    watch = Stopwatch()
    original = ModelSync.follow
    watch.measure(ModelSync, "follow", "follow")
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(count // 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    rig = th.attach(model, th.Hook("h", on="**", at="grad", do=th.stats()), optimizer=optimizer)
    best = float("inf")
    for _ in range(30):
        watch.seconds.clear()
        optimizer.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        best = min(best, watch.seconds["follow"])
    rig.detach()
    print(f"following {count:,} parameters: {best * 1e3:.3f} ms in a step")
    ModelSync.follow = original  # type: ignore[method-assign]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=192)
    steps = parser.parse_args().steps
    for name in ("0.33M", "5M"):
        audit(name, steps)
    for count in (1_000, 10_000):
        follow(count)
