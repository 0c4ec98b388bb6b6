"""Actions that observe and change nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated

import msgspec
import torch
from torch import Tensor

from tenterhook.actions.batched import ForeachNorms, PackedMeasure
from tenterhook.actions.context import Context
from tenterhook.actions.registry import BUILTIN, TENSOR_POINTS, action
from tenterhook.actions.row_measures import ROW_WIDTH, Rows, RowTotals
from tenterhook.actions.stats import measure_norm


@action("capture", registry=BUILTIN, at=TENSOR_POINTS)
def capture(x: Tensor, ctx: Context) -> None:
    """Keep a copy, for `rig.captured(hook)`: of the last step it was due in, every call and leaf."""
    ctx.keep(x)


def _count_nonfinite(x: Tensor) -> dict[str, Tensor]:
    return {"nonfinite": x.numel() - torch.isfinite(x).sum()}


@action(
    "watch_nonfinite",
    registry=BUILTIN,
    at=TENSOR_POINTS,
    measure=_count_nonfinite,
    partials={"nonfinite": "sum"},
    trigger=True,
)
def watch_nonfinite(merged: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Count the elements that are NaN or infinite; trips at the first."""
    return {"nonfinite": merged["nonfinite"], "trip": merged["nonfinite"] > 0}


def _nonfinite_kernel(x: Tensor) -> Rows:
    return (torch.where(x - x == 0, 0.0, 1.0).sum(1),)


def _nonfinite_eager(x: Tensor) -> Rows:
    all_finite = x.device.type == "cpu" and math.isfinite(x.sum().item())
    return (x.new_zeros(len(x)) if all_finite else (ROW_WIDTH - torch.isfinite(x).sum(1)).to(x.dtype),)


def _nonfinite_finish(sums: Tensor, padding: Tensor, numel: Tensor) -> dict[str, Tensor]:
    return {"nonfinite": sums[0]}


watch_nonfinite.batched = partial(PackedMeasure, RowTotals(1, _nonfinite_kernel, _nonfinite_eager, _nonfinite_finish))


@action(
    "spike",
    registry=BUILTIN,
    at=TENSOR_POINTS,
    measure=measure_norm,
    partials={"norm": "norm"},
    state={"mean": 0.0, "var": 0.0, "seen": 0.0},
    trigger=True,
)
def spike(
    merged: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    *,
    z: Annotated[float, msgspec.Meta(gt=0)] = 6.0,
    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.98,
    warmup: Annotated[int, msgspec.Meta(ge=1)] = 20,
    floor: Annotated[float, msgspec.Meta(ge=0)] = 0.0,
) -> dict[str, Tensor]:
    """Measure how many deviations the norm lies above its running mean; trips above `z`, once `warmup` steps were seen.

    A deviation counts as larger by `floor` of the mean: a norm that hardly ever changes would trip at the least change.
    """
    norm, fired = merged["norm"], merged["fired"] > 0
    mean, var, seen = state["mean"], state["var"], state["seen"]
    score = (norm - mean) / (var.sqrt() + floor * mean + 1e-12)
    trip = fired & (seen >= warmup) & (((score > z) & (mean > 0)) | ~torch.isfinite(norm))
    learns = fired & ~trip & torch.isfinite(norm)
    keep = (seen / (seen + 1)).clamp(max=alpha)  # a plain average at first: an EMA from zero is too sure of itself
    step = norm - mean
    var.copy_(torch.where(learns, keep * (var + (1 - keep) * step * step), var))
    mean.copy_(torch.where(learns, keep * mean + (1 - keep) * norm, mean))
    seen.add_(learns)
    return {"norm": norm, "score": score, "trip": trip}


spike.batched = ForeachNorms


def _measure_ratio(x: Tensor, value: Tensor) -> dict[str, Tensor]:
    return {**measure_norm(x), "weight": measure_norm(value)["norm"]}


@action(
    "ratio",
    registry=BUILTIN,
    at=("update",),
    needs_value=True,
    measure=_measure_ratio,
    partials={"norm": "norm", "weight": "norm"},
)
def ratio(merged: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Measure the norm of the update, that of the parameter, and the first divided by the second."""
    norm, weight = merged["norm"], merged["weight"]
    return {"norm": norm, "weight": weight, "ratio": torch.where(weight == 0, 0.0, norm / weight)}


ratio.batched = ForeachNorms
