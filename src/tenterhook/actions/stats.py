"""Statistics: partial results that merge over calls, leaves and shards, and the numbers made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, partial

import torch
from torch import Tensor

from tenterhook.actions.registry import BUILTIN, TENSOR_POINTS, Partial, action
from tenterhook.actions.together import CACHED, WIDTH, Bins, Together, Totals, widened
from tenterhook.errors import ContractError

BINS = 64
#: the exponent that the first bin stands for; smaller magnitudes fall into it as well
LOWEST = -40


def wide(x: Tensor) -> Tensor:
    """In a precision that sums can be taken in."""
    if x.is_complex() or x.layout is not torch.strided:
        raise unmeasurable(x)
    return widened(x)


def unmeasurable(x: Tensor) -> ContractError:
    return ContractError(
        f"statistics of a {'complex' if x.is_complex() else 'sparse'} tensor are not offered",
        remedy="leave the target out, or hook it with a function of your own",
    )


def measure_norm(x: Tensor) -> dict[str, Tensor]:
    return {"norm": torch.linalg.vector_norm(wide(x))}


def _measure_stats(x: Tensor) -> dict[str, Tensor]:
    x = wide(x)
    low, high = x.aminmax() if x.numel() else (x.new_zeros(()), x.new_zeros(()))
    return {
        "numel": torch.full((), x.numel(), dtype=torch.float64, device=x.device),
        "total": x.sum(),
        "norm": torch.linalg.vector_norm(x),
        "abs_max": torch.maximum(-low, high),
        "zeros": x.numel() - torch.count_nonzero(x),
        "nonfinite": x.numel() - torch.isfinite(x).sum(),
    }


def _stats_kernel(x: Tensor) -> tuple[Tensor, Tensor]:
    zeros, nonfinite = torch.where(x == 0, 1.0, 0.0), torch.where(x - x == 0, 0.0, 1.0)
    return torch.stack([x.sum(1), (x * x).sum(1), zeros.sum(1), nonfinite.sum(1)]), x.abs().amax(1)


def _stats_eager(x: Tensor) -> tuple[Tensor, Tensor]:
    norms = torch.linalg.vector_norm(x, dim=1)
    # Reading a number of the CPU's waits for nothing; elsewhere it would.
    calm = x.device.type == "cpu" and math.isfinite(norms.sum().item())
    nonfinite = torch.zeros_like(norms) if calm else WIDTH - torch.isfinite(x).sum(1)
    sums = torch.stack([x.sum(1), norms.square(), _zeros(x), nonfinite.to(norms.dtype)])
    return sums, torch.maximum(x.amax(1), -x.amin(1))


def _zeros(x: Tensor) -> Tensor:
    """Zeros in each row: eight at a time are added, in the bytes of one number, which hold up to 255."""
    words = _scratch(x.device)[: len(x)].copy_(x).view(torch.int64).sum(1)
    return (WIDTH - words.view(torch.uint8).view(len(x), 8).sum(1)).to(x.dtype)


@cache
def _scratch(device: torch.device) -> Tensor:
    return torch.empty(CACHED, WIDTH, dtype=torch.bool, device=device)


def _stats_finish(sums: Tensor, maxima: Tensor, padding: Tensor, numel: Tensor) -> dict[str, Tensor]:
    total, squares, zeros, nonfinite = sums
    return {
        "numel": numel, "total": total, "norm": squares.sqrt(), "abs_max": maxima, "zeros": zeros - padding,
        "nonfinite": nonfinite,
    }  # fmt: skip


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


stats.together = partial(Together, Totals(4, _stats_kernel, _stats_eager, _stats_finish))


#: where the exponent stands in a number's bits: its type, its place, what is added to it, all its bits
_EXPONENTS = {
    torch.float32: (torch.int32, 23, 127, 0xFF),
    torch.float64: (torch.int64, 52, 1023, 0x7FF),
}


def _bin_of(x: Tensor) -> Tensor:
    """From the exponent's bits; what is not finite goes beyond the last bin."""
    kind, place, bias, full = _EXPONENTS[x.dtype]
    exponent = (x.view(kind) >> place) & full
    found = (exponent - (bias + LOWEST)).clamp(0, BINS - 1)
    return torch.where(exponent == full, BINS, found).to(torch.uint8)


def _measure_histogram(x: Tensor) -> dict[str, Tensor]:
    return {"bins": torch.bincount(_bin_of(wide(x).contiguous()).view(-1), minlength=BINS + 1)[:BINS]}


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


histogram.together = partial(Together, Bins(BINS, _bin_of, "bins"))
