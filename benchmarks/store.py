"""Compare the store with TensorBoard's event files: the bytes per value, and the time to read one curve.

python -m benchmarks.store [targets] [steps]     # 1000 10000
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

import tenterhook as th
from tenterhook.record import Batch, StepTable


def batch(step: int, targets: list[str], generator: torch.Generator) -> Batch:
    values = torch.rand(len(targets), dtype=torch.float64, generator=generator)
    made = StepTable(step, targets, bytearray(b"\x01") * len(targets), lambda: {"norm": values}, width=1,
                 device=torch.device("cpu"))  # fmt: skip
    return Batch(step, 0, {"grads": made})


def main(targets: int, steps: int) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    names = [f"blocks.{i // 12}.layer.{i % 12}.weight" for i in range(targets)]
    with tempfile.TemporaryDirectory() as place:
        generator = torch.Generator().manual_seed(0)
        store = th.Store(f"{place}/run")
        for start in range(0, steps, 250):
            store.write([batch(step, names, generator) for step in range(start, min(start + 250, steps))])
        folder = Path(place) / "run"
        in_parts = sum(p.stat().st_size for p in folder.glob("*.parquet"))
        th.open_run(folder).merge()
        ours = sum(p.stat().st_size for p in folder.glob("*.parquet"))
        writer = SummaryWriter(f"{place}/events")
        few = max(1, steps // 50)
        generator.manual_seed(0)
        for step in range(few):  # TensorBoard would need minutes for all steps
            for key, value in batch(step, names, generator).entries().items():
                writer.add_scalar(key, value, step)
        writer.close()
        events = sum(p.stat().st_size for p in Path(place, "events").iterdir())
        print(f"{targets} targets x {steps} steps: {in_parts / targets / steps:.2f} bytes per value in parts, "
              f"{ours / targets / steps:.2f} merged; "
              f"event files {events / targets / few:.2f}, "
              f"which is {events / few / (ours / steps):.1f} times the merged size")  # fmt: skip
        times = []
        for number in range(5):
            start = time.monotonic()
            curve = th.open_run(folder).curve("grads", names[(number * 211) % targets], "norm")
            times.append(time.monotonic() - start)
            assert len(curve.steps) == steps
        start = time.monotonic()
        EventAccumulator(f"{place}/events", size_guidance={"scalars": 0}).Reload().Scalars(f"grads/{names[0]}/norm")
        read = time.monotonic() - start
        print(f"one curve: {statistics.median(times) * 1e3:.0f} ms, including opening the run; "
              f"TensorBoard's reader: {read:.1f} s for 1/{steps // few} of the steps")  # fmt: skip


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*(given + [1000, 10_000][len(given) :]))
