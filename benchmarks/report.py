"""Measure the report of a large run: the time to create it, its size, and the time to its first paint in Chromium.

python -m benchmarks.report [targets] [steps]     # 45000 1000
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

import torch

import tenterhook as th
from tenterhook.record import Batch, StepTable
from tenterhook.view import report

NAMES = ("norm", "rms", "mean", "abs_max", "zeros", "nonfinite")
#: the number of steps in one Parquet part
PART = 4


def names(targets: int) -> list[str]:
    """Return parameter names like those of a mixture of experts with 61 layers."""
    experts = targets // (61 * 3)
    found = [f"model.layers.{layer}.mlp.experts.{expert}.{kind}.weight"
             for layer in range(61) for expert in range(experts) for kind in ("gate", "up", "down")]  # fmt: skip
    return found + [f"model.layers.{n % 61}.attention.{n // 61}.weight" for n in range(targets - len(found))]


def batch(step: int, targets: list[str], generator: torch.Generator) -> Batch:
    rows = len(targets)
    size = torch.rand(rows, generator=generator, dtype=torch.float64) * 0.1 + torch.linspace(1e-4, 1e-1, rows).double()
    columns = {name: size / (place + 1) for place, name in enumerate(NAMES[:4])}
    columns |= {"zeros": torch.zeros(rows, dtype=torch.float64), "nonfinite": torch.zeros(rows, dtype=torch.float64)}
    made = StepTable(step, targets, bytearray(b"\x01") * rows, lambda: columns, width=len(NAMES),
                 device=torch.device("cpu"))  # fmt: skip
    return Batch(step, 0, {"grads": made})


def first_paint(page: Path) -> tuple[float, float]:
    """Return the milliseconds to the first paint of content, and until the map is drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1240, "height": 1000})
        tab.goto(f"{page.as_uri()}#page=flow")
        tab.wait_for_selector(".map-cells canvas", timeout=120_000)
        drawn = tab.evaluate("performance.now()")
        paints = tab.evaluate("performance.getEntriesByType('paint').map(e => [e.name, e.startTime])")
        browser.close()
    return dict(paints)["first-contentful-paint"], drawn


def main(targets: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, listed, generator = Path(place) / "run", names(targets), torch.Generator().manual_seed(0)
        store = th.Store(folder)
        for start in range(0, steps, PART):
            store.write([batch(step, listed, generator) for step in range(start, min(start + PART, steps))])
        recorded = sum(p.stat().st_size for p in folder.glob("*.parquet"))
        print(f"{targets} targets x {steps} steps x {len(NAMES)} numbers: {recorded / 1e9:.2f} GB", flush=True)
        start = time.monotonic()
        report(folder, folder / "report.html")
        print(f"the report was created in {time.monotonic() - start:.0f} s, "
              f"{(folder / 'report.html').stat().st_size / 1e6:.1f} MB", flush=True)  # fmt: skip
        painted, drawn = first_paint(folder / "report.html")
        print(f"first paint after {painted:.0f} ms, the map drawn after {drawn:.0f} ms")


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*(given + [45_000, 1_000][len(given) :]))
