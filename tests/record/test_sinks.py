"""Log to real trackers, and read the numbers back from the files that they wrote."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.record import Row
from tenterhook.record.sinks import TensorBoard
from tests.support.needs import needs

PLAN = [
    th.Hook("norms", on="**", at="grad_final", do=th.stats()),
    th.Hook("bins", on="weight", at="grad_final", do=th.histogram()),
    th.Hook("outputs", on=".", at="output", do=th.stats()),
]


def train(sink: Any, steps: int = 4) -> dict[str, list[float]]:
    """Train with a tracker and a plain function as sinks, and return the numbers that the function received."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told: dict[str, list[Any]] = {}

    def log(entries: dict[str, Any], step: int) -> None:
        for key, value in entries.items():
            told.setdefault(key, []).append(value)

    with th.attach(model, PLAN, optimizer=optimizer, sinks=[sink, log]) as rig:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
        assert rig.flush(60.0)
        assert [one.written for one in rig._recorder.workers] == [steps * (3 * 6 + 1)] * 2
    return told


def test_actions_and_sinks_use_the_same_bins():
    drawn: dict[str, Any] = {}

    class Writer:
        def add_histogram_raw(self, key: str, **given: Any) -> None:
            drawn.update(given)

    counts = th.histogram.measure(torch.tensor([1.0, -1.5, 2.0**-60, 0.25]))["bins"].tolist()
    TensorBoard(Writer()).log(0, [Row(0, 0, "h", "t", "bins", counts)])
    by_limit = dict(zip(drawn["bucket_limits"], drawn["bucket_counts"], strict=True))
    assert {limit: count for limit, count in by_limit.items() if count} == {-39.0: 1.0, -1.0: 1.0, 1.0: 2.0}
    assert (drawn["min"], drawn["max"], drawn["num"]) == (-40, 1, 4.0)


def test_tensorboard(tmp_path: Path):
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(tmp_path)
    told = train(writer)
    writer.close()
    events = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "histograms": 0}).Reload()
    for key, values in told.items():
        if key.startswith("bins/"):
            found = events.Histograms(key)
            assert [e.step for e in found] == [0, 1, 2, 3]
            counts = [sum(e.histogram_value.bucket) for e in found]
            assert counts == [sum(v) for v in values]
        else:
            assert [e.step for e in events.Scalars(key)] == [0, 1, 2, 3]
            assert [e.value for e in events.Scalars(key)] == pytest.approx(values, rel=1e-6)


def wandb_history(file: Path) -> list[dict[str, Any]]:
    """Return the rows in a file of wandb."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store, history = DataStore(), []
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            history.append({"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items})
    return history


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wandb = needs("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path, project="p") as run:
        run.log({"loss": 1.0})
        told = train(run)
        run.log({"loss": 0.5})
    (file,) = tmp_path.rglob("*.wandb")
    until = time.monotonic() + 60
    while len(history := wandb_history(file)) < 6 and time.monotonic() < until:
        time.sleep(0.1)  # the process of wandb may still be writing
    ours = [h for h in history if "tenterhook/step" in h]
    assert [h["tenterhook/step"] for h in ours] == [0, 1, 2, 3]
    for key, values in told.items():
        assert [h[key] for h in ours] == values
    assert [h["loss"] for h in history if "loss" in h] == [1.0, 0.5]


@pytest.fixture
def mlflow_server(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
               "--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db", "--artifacts-destination",
               str(tmp_path / "artifacts")]  # fmt: skip
    with open(tmp_path / "server.log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/health", timeout=1)
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "server.log").read_text()
                time.sleep(0.1)
        yield address
    finally:
        os.killpg(server.pid, 9)
        server.wait()


@pytest.mark.programs
@pytest.mark.filterwarnings("ignore")
def test_mlflow_with_a_server(mlflow_server: str):
    mlflow = needs("mlflow")

    mlflow.set_tracking_uri(mlflow_server)
    with mlflow.start_run() as run:
        told = train(run)
    client = mlflow.MlflowClient()
    for key, values in told.items():
        if key.startswith("bins/"):
            continue
        history = client.get_metric_history(run.info.run_id, key.replace("/./", "/root/"))
        assert [(m.step, m.value) for m in sorted(history, key=lambda m: m.step)] == list(enumerate(values))


def test_an_object_that_is_not_a_sink_is_refused():
    with pytest.raises(th.StoreError, match="an object of type int is not a sink"):
        th.attach(nn.Linear(1, 1), [], sinks=3)
