"""Define the observer that finds the ranks on which a statistic is lowest and highest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tenterhook.actions.definition import TENSOR_POINTS
from tenterhook.actions.registry import BUILTIN, action
from tenterhook.actions.stats import as_measurable

#: the numbers of a rank that are compared with those of the other ranks
STATISTICS = ("norm", "mean", "nonfinite")


def _measure(x: Tensor) -> dict[str, Tensor]:
    sharded: Any = x
    x = as_measurable(sharded.to_local() if hasattr(x, "to_local") else x)
    norm = torch.linalg.vector_norm(x)
    # Check this only on the CPU, because reading a number from another device would wait for that device.
    finite = x.device.type == "cpu" and math.isfinite(norm)
    return {
        "numel": torch.full((), x.numel(), dtype=torch.float64, device=x.device),
        "total": x.sum(),
        "norm": norm,
        "nonfinite": torch.zeros_like(norm) if finite else x.numel() - torch.isfinite(x).sum(),
    }


@action(
    "skew",
    registry=BUILTIN,
    at=tuple(point for point in TENSOR_POINTS if point not in ("grad_final", "update")),
    measure=_measure,
    partials={"numel": "sum", "total": "sum", "norm": "norm", "nonfinite": "sum"},
)
def skew(merged: Mapping[str, Tensor], state: Mapping[str, Tensor], /, *, time: bool = False) -> dict[str, Tensor]:
    """Find the ranks on which the values of this rank are smallest and largest, over all targets of the hook.

    It shows which rank has a gradient or a loss that is not finite, or is unlike that of the other ranks. Before they
    are reduced, gradients are at the points `grad` and `grad_output`. A loss is at the `output` of its module, or in a
    tap.

    For `norm`, `mean` and `nonfinite` (the number of elements that are NaN or infinite), four numbers are recorded for
    the target `.`: `norm_min`, `norm_min_rank`, `norm_max`, `norm_max_rank`, and so on. A rank without elements or
    with NaN is left out. The numbers are NaN if all ranks are left out. The ranks are -1 if several ranks have a
    number, and all of them the same one.

    On several ranks, the numbers are exchanged in the next step, together with what the ranks exchange there anyway. So
    they are recorded one step later, under the step in which they were measured. Those of the last step, and of the
    step before the hook is revised or removed, are not recorded, and a flight report of a step does not contain them
    yet. As with other observers, a backward pass that no optimizer step follows is not recorded.

    Args:
        time: Record `seconds` too, from the end of the last step to the beginning of the first forward pass of the
            model that was given to `attach`. In this time, a rank usually loads its data and does not wait for other
            ranks. It is NaN in the first step, and if the program calls only parts of the model.

    Returns:
        An action for `Hook(do=...)`.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> rig = th.attach(model, th.Hook("local", on="**", at="grad", do=th.skew()))
        >>> model(torch.tensor([[3.0, 4.0]])).sum().backward()
        >>> numbers = rig.values("local")["."]
        >>> numbers["norm_min"], numbers["norm_max"], numbers["norm_max_rank"], numbers["nonfinite_max"]
        (5.0, 5.0, 0.0, 0.0)
    """
    return {
        "norm": torch.where(merged["numel"] > 0, merged["norm"], torch.nan),
        "mean": merged["total"] / merged["numel"],
        "nonfinite": merged["nonfinite"],
    }


skew.across_ranks = "range"
