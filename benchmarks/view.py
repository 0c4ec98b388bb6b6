"""Measure `tenterhook view` on very large runs, in Chromium.

python -m benchmarks.view                 # make both runs in a temporary folder, and measure them
python -m benchmarks.view --runs FOLDER   # use the runs that are there, or make them there

One run has 45,000 targets and 1,000 steps, the other one 1,000 targets and 100,000 steps. `th.Store` writes each in 250
parts, as in a training. `ui/e2e/measure.mjs` drives the browser. The peak memory is that of the server.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import tenterhook as th
from tenterhook.record import Batch, StepTable

ROOT = Path(__file__).parents[1]
PARTS = 250
#: name, targets, steps
RUNS = (("wide", 45_000, 1_000), ("long", 1_000, 100_000))
SETUP = {"torch": torch.__version__, "device": "cpu", "ranks": 1, "sharded": False, "compiled": False,
         "dtype": "float32"}  # fmt: skip
MODULES = ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.up")


def targets(count: int) -> list[str]:
    """Return names of parameters: 5 modules with a weight and a bias in each of `count // 10` blocks."""
    return [
        f"layers.{block}.{module}.{parameter}"
        for block in range(count // 10)
        for module in MODULES
        for parameter in ("weight", "bias")
    ]


def make(folder: Path, count: int, steps: int) -> None:
    """Write a run: norms that fall with the steps, differ by target, and are NaN in a few cells."""
    names = targets(count)
    chance = torch.Generator().manual_seed(0)
    levels = torch.exp(torch.randn(count, generator=chance))
    store = th.Store(folder)
    each = steps // PARTS
    for part in range(PARTS):
        batches = []
        for step in range(part * each, (part + 1) * each):
            norms = levels * torch.exp(0.3 * torch.randn(count, generator=chance)) / (1 + step / steps)
            norms[(torch.rand(count, generator=chance) < 1e-6)] = torch.nan

            def columns(norms: torch.Tensor = norms) -> dict[str, torch.Tensor]:
                return {"norm": norms.double()}

            table = StepTable(step, names, bytearray(b"\1" * count), columns, width=1, device=torch.device("cpu"))
            batches.append(Batch(step, 0, {"grads": table}, []))
        store.write(batches)
    store.keep("plan.json", th.Plan([th.Hook("grads", on="**", at="grad_final", do=th.stats())]).to_json())
    own: dict[str, list[str]] = {".": [], "layers": []}
    for name in names:
        module = name.rpartition(".")[0]
        own.setdefault(module.rsplit(".", 2)[0], [])
        own.setdefault(module.rpartition(".")[0], [])
        own.setdefault(module, []).append(name)
    layers = [[name, "Linear" if parameters else "Block", parameters] for name, parameters in own.items()]
    store.keep("model.json", json.dumps({"tenterhook": 1, "setup": SETUP, "layers": layers}))
    store.close()


def peak_memory(process: int) -> str:
    """Return the peak resident memory of a process."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return f"{int(found[1]) / 1024:,.0f} MiB" if found else "unknown"


def measure(run: Path) -> None:
    """Start the server for a run, and measure its page."""
    command = [sys.executable, "-m", "tenterhook", "view", str(run), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        try:
            subprocess.run(["npm", "run", "--silent", "measure", "--", address], cwd=ROOT / "ui", check=True)
            print(f"peak memory of the server: {peak_memory(server.pid)}", flush=True)
        finally:
            server.send_signal(signal.SIGINT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", metavar="FOLDER", help="folder of the runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(options.runs or made)
        for name, count, steps in RUNS:
            if not (folder / name / "model.json").exists():
                begin = time.perf_counter()
                make(folder / name, count, steps)
                size = sum(os.path.getsize(part) for part in (folder / name).glob("part-*")) / 2**20
                print(f"{name}: made in {time.perf_counter() - begin:.0f} s, {size:,.0f} MiB", flush=True)
            print(f"\n{count:,} targets and {steps:,} steps", flush=True)
            measure(folder / name)


if __name__ == "__main__":
    main()
