"""Statistics: partial results that merge over calls, leaves and shards, and the numbers made of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tenterhook.actions.registry import BUILTIN, TENSOR_POINTS, Partial, action
from tenterhook.errors import ContractError

BINS = 64
#: the exponent that the first bin stands for; smaller magnitudes fall into it as well
LOWEST = -40


def wide(x: Tensor) -> Tensor:
    """In a precision that sums can be taken in."""
    if x.is_complex() or x.layout is not torch.strided:
        raise ContractError(
            f"statistics of a {'complex' if x.is_complex() else 'sparse'} tensor are not offered",
            remedy="leave the target out, or hook it with a function of your own",
        )
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def measure_norm(x: Tensor) -> dict[str, Tensor]:
    return {"norm": torch.linalg.vector_norm(wide(x))}


def _measure_stats(x: Tensor) -> dict[str, Tensor]:
    x = wide(x)
    return {
        "numel": torch.full((), x.numel(), dtype=torch.float64, device=x.device),
        "total": x.sum(),
        "norm": torch.linalg.vector_norm(x),
        "abs_max": torch.linalg.vector_norm(x, torch.inf) if x.numel() else x.new_zeros(()),
        "zeros": (x == 0).sum(),
        "nonfinite": x.numel() - torch.isfinite(x).sum(),
    }


@action(
    "stats",
    registry=BUILTIN,
    at=TENSOR_POINTS,
    measure=_measure_stats,
    partials={"numel": "sum", "total": "sum", "norm": "norm", "abs_max": "max", "zeros": "sum", "nonfinite": "sum"},
)
def stats(merged: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """norm, rms, mean, abs_max, zeros (the fraction) and nonfinite (the count), over all calls of the step."""
    numel = merged["numel"].clamp(min=1)
    return {
        "norm": merged["norm"],
        "rms": merged["norm"] / numel.sqrt(),
        "mean": merged["total"] / numel,
        "abs_max": merged["abs_max"],
        "zeros": merged["zeros"] / numel,
        "nonfinite": merged["nonfinite"],
    }


def _measure_histogram(x: Tensor) -> dict[str, Tensor]:
    x = wide(x).flatten().abs()
    x = x[torch.isfinite(x)]
    exponent = torch.where(x > 0, x.log2().floor(), LOWEST).clamp(LOWEST, LOWEST + BINS - 1)
    return {"bins": torch.bincount((exponent - LOWEST).long(), minlength=BINS)}


@action(
    "histogram",
    registry=BUILTIN,
    at=TENSOR_POINTS,
    measure=_measure_histogram,
    partials={"bins": Partial("sum", BINS)},
)
def histogram(merged: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Counts of magnitudes in 64 bins: bin i holds 2^(i-40) up to 2^(i-39); what is not finite is left out."""
    return {"bins": merged["bins"]}
