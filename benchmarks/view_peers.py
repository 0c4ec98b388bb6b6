"""Measure how long the pages of TensorBoard and MLflow take to show curves, in Chromium.

python -m benchmarks.view_peers                        # 45,000 curves of 10 steps
python -m benchmarks.view_peers --targets 1000 --steps 1000

Neither tool has a map of layers and steps, so the time is that from opening the page until the first curve, and then
until the curves that a search finds. `python -m benchmarks.view` measures `tenterhook view`.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from benchmarks.view import targets

#: seconds after which a page is given up
PATIENCE = 420
SEARCHED = "layers.7.mlp.up.weight"


def write_events(folder: Path, names: list[str], values: np.ndarray) -> None:
    """Write the curves as TensorBoard's own writer does."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for step, row in enumerate(values):
            for name, value in zip(names, row, strict=True):
                writer.add_scalar(name.replace(".", "/"), value, step)


def write_mlflow(folder: Path, names: list[str], values: np.ndarray) -> str:
    """Write the curves in batches of the largest size that MLflow accepts. Return the address of the run's page."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    run = client.create_run(client.create_experiment("wide", f"file://{folder}/artifacts"))
    found = [Metric(name, float(row[at]), 0, step) for step, row in enumerate(values) for at, name in enumerate(names)]
    for start in range(0, len(found), 1000):
        client.log_batch(run.info.run_id, found[start : start + 1000])
    return f"#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}/model-metrics"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def memory(process: int) -> int:
    """Return the resident memory of a process and of its children, in MiB."""
    own = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(own[1]) // 1024 + sum(memory(int(child)) for child in children) if own else 0


def timed(what: str, wait: Callable[[], Any]) -> None:
    begin = time.perf_counter()
    try:
        wait()
        print(f"  {what}: {time.perf_counter() - begin:.1f} s", flush=True)
    except Exception as error:
        print(f"  {what}: not in {PATIENCE} s ({str(error).splitlines()[0]})", flush=True)


def measure(name: str, command: list[str], port: int, place: str, curve: str, search: str, page: Page) -> None:
    """Start a server, and measure its page."""
    print(f"\n{name}", flush=True)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            address, begin = f"http://127.0.0.1:{port}/", time.perf_counter()
            while time.perf_counter() - begin < 120:
                with socket.socket() as one:
                    if one.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.2)
            print(f"  the server answers: {time.perf_counter() - begin:.1f} s", flush=True)
            page.goto(address + place, wait_until="commit")
            timed("first curve", lambda: page.wait_for_selector(curve, timeout=PATIENCE * 1000))
            timed("curve that a search finds", lambda: find(page, search, curve))
            print(f"  memory of the server: {memory(server.pid):,} MiB", flush=True)
        finally:
            server.terminate()


#: whether a curve is drawn in a card with this name
_DRAWN = """([curve, name]) => [...document.querySelectorAll(curve)].some(one => {
  for (let card = one, up = 0; card && up < 7; card = card.parentElement, up++)
    if (card.textContent.replace(/[^\\w.\\/]/g, '').includes(name)) return card.getBoundingClientRect().height < 600;
  return false;
})"""


def find(page: Page, search: str, curve: str) -> None:
    name = SEARCHED.replace(".", "/") if "tags" in search else SEARCHED
    page.locator(search).first.fill(name)
    page.wait_for_function(_DRAWN, arg=[curve, name], timeout=PATIENCE * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=45_000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--only", choices=("tensorboard", "mlflow"))
    options = parser.parse_args()
    names = targets(options.targets)
    values = np.exp(np.random.default_rng(0).standard_normal((options.steps, len(names))))
    print(f"{len(names):,} curves of {options.steps} steps", flush=True)
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        folder = Path(made)
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        binary = Path(sys.executable).parent
        if options.only != "mlflow":
            write_events(folder / "events", names, values)
            port = free_port()
            command = [str(binary / "tensorboard"), "--logdir", str(folder / "events"), "--port", str(port)]
            measure(
                "TensorBoard",
                command,
                port,
                "#timeseries",
                "scalar-card svg",
                "input[placeholder^='Filter tags']",
                page,
            )
        if options.only != "tensorboard":
            place = write_mlflow(folder, names, values)
            port = free_port()
            store = f"sqlite:///{folder}/mlflow.db"
            command = [str(binary / "mlflow"), "ui", "--backend-store-uri", store, "--port", str(port)]
            measure("MLflow", command, port, place, ".js-plotly-plot svg", "input[placeholder^='Search metric']", page)
        browser.close()


if __name__ == "__main__":
    main()
