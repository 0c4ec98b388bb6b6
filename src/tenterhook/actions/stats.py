"""Statistics: partial results that merge over calls, leaves and shards, and the numbers made of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from functools import cache, partial

import torch
from torch import Tensor

from tenterhook.actions.batched import PackedMeasure
from tenterhook.actions.registry import BUILTIN, TENSOR_POINTS, Partial, action
from tenterhook.actions.row_measures import CACHED_ROWS, ROW_WIDTH, RowBins, Rows, RowTotals, widen
from tenterhook.errors import ContractError
from tenterhook.plan.histogram import BINS, LOWEST_EXPONENT


def as_measurable(x: Tensor) -> Tensor:
    """Return `x` in a precision that sums can be taken in, or raise for a complex or sparse tensor."""
    if x.is_complex() or x.layout is not torch.strided:
        raise unmeasurable(x)
    return widen(x)


def unmeasurable(x: Tensor) -> ContractError:
    """Return the error to raise for a tensor without statistics."""
    return ContractError(
        f"statistics of a {'complex' if x.is_complex() else 'sparse'} tensor are not offered",
        remedy="leave the target out, or hook it with a function of your own",
    )


def measure_norm(x: Tensor) -> dict[str, Tensor]:
    return {"norm": torch.linalg.vector_norm(as_measurable(x))}


def _measure_stats(x: Tensor) -> dict[str, Tensor]:
    x = as_measurable(x)
    low, high = x.aminmax() if x.numel() else (x.new_zeros(()), x.new_zeros(()))
    return {
        "numel": torch.full((), x.numel(), dtype=torch.float64, device=x.device),
        "total": x.sum(),
        "norm": torch.linalg.vector_norm(x),
        "abs_max": torch.maximum(-low, high),
        "zeros": x.numel() - torch.count_nonzero(x),
        "nonfinite": x.numel() - torch.isfinite(x).sum(),
    }


def _stats_kernel(x: Tensor) -> Rows:
    zeros, nonfinite = torch.where(x == 0, 1.0, 0.0), torch.where(x - x == 0, 0.0, 1.0)
    return x.sum(1), (x * x).sum(1), zeros.sum(1), nonfinite.sum(1), x.abs().amax(1)


def _stats_eager(x: Tensor) -> Rows:
    norms = torch.linalg.vector_norm(x, dim=1)
    # Reading a number on the CPU waits for nothing; elsewhere it would.
    all_finite = x.device.type == "cpu" and math.isfinite(norms.sum().item())
    nonfinite = torch.zeros_like(norms) if all_finite else ROW_WIDTH - torch.isfinite(x).sum(1)
    return x.sum(1), norms.square(), _zeros(x), nonfinite.to(norms.dtype), torch.maximum(x.amax(1), -x.amin(1))


def _zeros(x: Tensor) -> Tensor:
    """Count the zeros in each row: eight at a time are added, in the bytes of one number, which hold up to 255."""
    words = _scratch(x.device)[: len(x)].copy_(x).view(torch.int64).sum(1)
    return (ROW_WIDTH - words.view(torch.uint8).view(len(x), 8).sum(1)).to(x.dtype)


_threads = threading.local()


def _scratch(device: torch.device) -> Tensor:
    """Return a buffer of this thread, kept so that no memory is asked for in each step."""
    kept: dict[torch.device, Tensor] = vars(_threads).setdefault("scratch", {})
    if device not in kept:
        kept[device] = torch.empty(CACHED_ROWS, ROW_WIDTH, dtype=torch.bool, device=device)
    return kept[device]


def _stats_finish(sums: Tensor, padding: Tensor, numel: Tensor, largest: Tensor) -> dict[str, Tensor]:
    total, squares, zeros, nonfinite = sums
    return {
        "numel": numel.clone(),
        "total": total,
        "norm": squares.sqrt(),
        "abs_max": largest,
        "zeros": zeros - padding,
        "nonfinite": nonfinite,
    }


@action(
    "stats",
    registry=BUILTIN,
    at=TENSOR_POINTS,
    measure=_measure_stats,
    partials={"numel": "sum", "total": "sum", "norm": "norm", "abs_max": "max", "zeros": "sum", "nonfinite": "sum"},
)
def stats(merged: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Measure norm, rms, mean, abs_max, zeros (the fraction) and nonfinite (the count), over all calls of the step."""
    numel = merged["numel"].clamp(min=1)
    return {
        "norm": merged["norm"],
        "rms": merged["norm"] / numel.sqrt(),
        "mean": merged["total"] / numel,
        "abs_max": merged["abs_max"],
        "zeros": merged["zeros"] / numel,
        "nonfinite": merged["nonfinite"],
    }


stats.batched = partial(PackedMeasure, RowTotals(4, _stats_kernel, _stats_eager, _stats_finish))


def _exponents(x: Tensor) -> Tensor:
    """Return the bits of each number's exponent, without its sign."""
    if x.dtype == torch.float32:
        return (x.view(torch.int32) >> 23).to(torch.uint8)  # which drops the sign
    return ((x.view(torch.int64) >> 52) & 0x7FF).to(torch.int16)


@cache
def _bin_of_exponent(dtype: torch.dtype) -> list[int]:
    """Map each raw exponent to its bin; non-finite values, whose bits are all set, get -1."""
    exponents, bias = (256, 127) if dtype == torch.float32 else (2048, 1023)
    return [min(max(raw - bias - LOWEST_EXPONENT, 0), BINS - 1) for raw in range(exponents - 1)] + [-1]


_magnitudes = RowBins("bins", _exponents, _bin_of_exponent)


def _measure_histogram(x: Tensor) -> dict[str, Tensor]:
    x = as_measurable(x)
    into = _magnitudes.start(1, x.device)
    _magnitudes.add_site(into, (_exponents(x.contiguous()), x.dtype), 0)
    return {"bins": into["counts"][0]}


@action(
    "histogram",
    registry=BUILTIN,
    at=TENSOR_POINTS,
    measure=_measure_histogram,
    partials={"bins": Partial("sum", BINS)},
)
def histogram(merged: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Count magnitudes in 64 bins: bin i holds 2^(i-40) up to 2^(i-39); non-finite values are not counted."""
    return {"bins": merged["bins"]}


histogram.batched = partial(PackedMeasure, _magnitudes)
