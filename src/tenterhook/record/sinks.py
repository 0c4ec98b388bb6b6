"""Wrap experiment trackers as sinks.

The user passes the tracker's writer or run object. `adapt_tracker` recognizes the object by its class.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from tenterhook.plan.histogram import LOWEST_EXPONENT
from tenterhook.record.rows import Batch, Row

#: number of seconds for which batches are collected before they are written
LINGER = 1.0
#: maximum number of metrics in one request to an MLflow server
MAX_METRICS = 1000


def adapt_tracker(given: Any) -> Any:
    """Wrap a tracker object in a Writer. Return any other object unchanged."""
    for kind in type(given).__mro__:
        wrap = _TRACKERS.get(f"{kind.__module__}.{kind.__name__}")
        if wrap is not None:
            return wrap(given)
    return given


class _Tracker:
    """The base class of the Writers that log the rows of each step to a tracker."""

    linger = LINGER

    def write(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self.log(batch.step, [*batch.rows(), *_dropped_row(batch)])
        self.flush()

    def log(self, step: int, rows: list[Row]) -> None:
        raise NotImplementedError

    def flush(self) -> None: ...
    def close(self) -> None: ...


class TensorBoard(_Tracker):
    """A Writer that passes scalars and histograms to a SummaryWriter. The histogram axis shows base-2 exponents."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, step: int, rows: list[Row]) -> None:
        for row in rows:
            if isinstance(row.value, list):
                self._histogram(row, row.value)
            else:
                self._writer.add_scalar(row.key, row.value, step)

    def _histogram(self, row: Row, counts: list[float]) -> None:
        edges = [float(LOWEST_EXPONENT + place + 1) for place in range(len(counts))]
        there = [place for place, count in enumerate(counts) if count] or [0]
        middles = [edge - 0.5 for edge in edges]
        self._writer.add_histogram_raw(
            row.key,
            min=LOWEST_EXPONENT + there[0],
            max=LOWEST_EXPONENT + there[-1] + 1,
            num=sum(counts),
            sum=sum(middle * count for middle, count in zip(middles, counts, strict=True)),
            sum_squares=sum(middle**2 * count for middle, count in zip(middles, counts, strict=True)),
            bucket_limits=edges,
            bucket_counts=counts,
            global_step=row.step,
        )

    def flush(self) -> None:
        self._writer.flush()


class WandB(_Tracker):
    """A Writer that logs history rows to a W&B run.

    The rows have a separate step axis, because a sink thread can fall behind the run's step counter.
    """

    axis = "tenterhook/step"

    def __init__(self, run: Any) -> None:
        self._run = run
        self._hooks: set[str] = set()

    def log(self, step: int, rows: list[Row]) -> None:
        for hook in {row.hook for row in rows} - self._hooks:
            self._hooks.add(hook)
            self._run.define_metric(f"{hook}/*", step_metric=self.axis)
        self._run.log({self.axis: step, **{row.key: row.value for row in rows}})


class MLflow(_Tracker):
    """A Writer that logs metrics to an MLflow run.

    Metrics are logged through an `MlflowClient`, because in MLflow each thread has its own active run. MLflow does not
    support histograms, so lists of numbers are left out.
    """

    def __init__(self, run: Any) -> None:
        from mlflow import MlflowClient

        self._run = run.info.run_id
        self._client = MlflowClient()

    def log(self, step: int, rows: list[Row]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(_mlflow_key(r.key), r.value, now, step) for r in rows if not isinstance(r.value, list)]
        for start in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(self._run, metrics=metrics[start : start + MAX_METRICS])


def _mlflow_key(key: str) -> str:
    """Return a name that MLflow accepts. The root module `.` becomes `root`, because MLflow treats names as paths."""
    return re.sub(r"[^\w\-. /:]", "_", "/".join("root" if part == "." else part for part in key.split("/")))


def _dropped_row(batch: Batch) -> list[Row]:
    if not batch.dropped:
        return []
    return [Row(batch.step, batch.rank, "tenterhook", "recorder", "dropped", float(batch.dropped))]


_TRACKERS: dict[str, Callable[[Any], _Tracker]] = {
    "torch.utils.tensorboard.writer.SummaryWriter": TensorBoard,
    "tensorboardX.writer.SummaryWriter": TensorBoard,
    "wandb.sdk.wandb_run.Run": WandB,
    "mlflow.entities.run.Run": MLflow,
}
