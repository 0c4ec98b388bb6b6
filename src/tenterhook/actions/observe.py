"""Define the observers: actions that measure or copy the value and leave it unchanged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal

import msgspec
import torch
from torch import Tensor

from tenterhook.actions.batched import ForeachNorms, PackedMeasure
from tenterhook.actions.context import Context
from tenterhook.actions.definition import TENSOR_POINTS
from tenterhook.actions.registry import BUILTIN, action
from tenterhook.actions.row_measures import ROW_WIDTH, Rows, RowTotals
from tenterhook.actions.stats import measure_norm


@action("capture", registry=BUILTIN, at=TENSOR_POINTS)
def capture(
    x: Tensor, ctx: Context, *, leaf: int | None = None, to: Literal["cpu"] | None = None, most: int = 4096
) -> None:
    """Keep a copy of the value for `rig.captured(id)`.

    tenterhook keeps the copies from one step: one for each tensor of each call of the target. The copies are replaced
    when the hook fires in a later step.

    Args:
        leaf: Index of the tensor to keep, if a call has several tensors. The default is all of them.
        to: `"cpu"` keeps the copies in the memory of the host. By default, they stay on their device.
        most: Largest number of copies of this hook in one step. Further values are not kept. The rig prints their
            number.

    Returns:
        An action for `Hook(do=...)`.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Sequential(torch.nn.ReLU())
        >>> rig = th.attach(model, th.Hook("acts", on="0", at="output", do=th.capture()))
        >>> y = model(torch.tensor([-1.0, 2.0]))
        >>> rig.captured("acts")
        {'0': [tensor([0., 2.])]}
    """
    if leaf is None or ctx.leaf == leaf:
        ctx.keep(x, to=to, most=most)


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
    """Count the elements that are NaN or infinite, and trip if there are any.

    A trip activates hooks with `When(after_trip=...)`, and a flight recorder writes the most recent steps to a folder.
    The recorded number is `nonfinite`.

    Returns:
        An action for `Hook(do=...)`.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1)
        >>> rig = th.attach(model, th.Hook("bad", on="**", at="grad", do=th.watch_nonfinite()))
        >>> model(torch.tensor([[1.0, float("inf")]])).sum().backward()
        >>> rig.values("bad")["weight"]
        {'nonfinite': 1.0}
    """
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
    /,
    z: Annotated[float, msgspec.Meta(gt=0)] = 6.0,
    *,
    alpha: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.98,
    warmup: Annotated[int, msgspec.Meta(ge=1)] = 20,
    floor: Annotated[float, msgspec.Meta(ge=0)] = 0.0,
) -> dict[str, Tensor]:
    """Compare the norm with its running mean, and trip if the norm is too large.

    The action trips if the norm is more than `z` standard deviations above its running mean, or if the norm is not
    finite. A trip activates hooks with `When(after_trip=...)`, and a flight recorder writes the most recent steps to a
    folder. The recorded numbers are `norm` and `score`. The score is the number of standard deviations by which the
    norm exceeds the mean. The running mean and variance are saved in checkpoints, and a norm that causes a trip does
    not update them.

    Args:
        z: Highest score that does not cause a trip.
        alpha: Weight of past norms in the running mean and variance, between 0 and 1.
        warmup: Number of norms to average before a trip is possible.
        floor: Fraction of the mean that is added to the standard deviation. If `floor` is 0, a tiny change in an almost
            constant norm may cause a trip.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: A parameter is outside its range.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> rig = th.attach(model, th.Hook("leap", on="**", at="grad", do=th.spike(warmup=3)))
        >>> for x in (1.0, 1.1, 0.9, 100.0):
        ...     model(torch.tensor([[x]])).sum().backward()
        >>> rig.values("leap")["weight"]["score"] > 6.0
        True
    """
    norm, fired = merged["norm"], merged["fired"] > 0
    mean, var, seen = state["mean"], state["var"], state["seen"]
    score = (norm - mean) / (var.sqrt() + floor * mean + 1e-12)
    trip = fired & (seen >= warmup) & (((score > z) & (mean > 0)) | ~torch.isfinite(norm))
    learns = fired & ~trip & torch.isfinite(norm)
    keep = (seen / (seen + 1)).clamp(max=alpha)  # a plain average at first, because an EMA from zero is biased
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
    at=("grad_final", "update"),
    needs_value=True,
    measure=_measure_ratio,
    partials={"norm": "norm", "weight": "norm"},
)
def ratio(merged: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Measure the size of an update, or of a gradient, relative to its parameter.

    The recorded numbers are `norm` (at `update`, the norm of the update; at `grad_final`, the norm of the gradient),
    `weight` (the norm of the parameter, after the update or before it) and `ratio` (`norm` divided by `weight`, or 0 if
    `weight` is 0).

    Returns:
        An action for `Hook(do=...)`.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.constant_(model.weight, 1.0)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        >>> rig = th.attach(model, th.Hook("moved", on="**", at="update", do=th.ratio()), optimizer=optimizer)
        >>> model(torch.ones(1, 1)).sum().backward()
        >>> optimizer.step()
        >>> rig.values("moved")
        {'weight': {'norm': 0.5, 'weight': 0.5, 'ratio': 1.0}}
    """
    norm, weight = merged["norm"], merged["weight"]
    return {"norm": norm, "weight": weight, "ratio": torch.where(weight == 0, 0.0, norm / weight)}


ratio.batched = ForeachNorms
