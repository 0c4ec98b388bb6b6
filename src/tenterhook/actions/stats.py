"""Statistics: partial results that merge over calls, leaves and shards, and the numbers made of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from functools import cache, partial

import torch
from torch import Tensor

from tenterhook.actions.batched import CACHED, WIDTH, Bins, Rows, Together, Totals, widened
from tenterhook.actions.registry import BUILTIN, TENSOR_POINTS, Partial, action
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


def _stats_kernel(x: Tensor) -> Rows:
    zeros, nonfinite = torch.where(x == 0, 1.0, 0.0), torch.where(x - x == 0, 0.0, 1.0)
    return x.sum(1), (x * x).sum(1), zeros.sum(1), nonfinite.sum(1), x.abs().amax(1)


def _stats_eager(x: Tensor) -> Rows:
    norms = torch.linalg.vector_norm(x, dim=1)
    # Reading a number of the CPU's waits for nothing; elsewhere it would.
    calm = x.device.type == "cpu" and math.isfinite(norms.sum().item())
    nonfinite = torch.zeros_like(norms) if calm else WIDTH - torch.isfinite(x).sum(1)
    return x.sum(1), norms.square(), _zeros(x), nonfinite.to(norms.dtype), torch.maximum(x.amax(1), -x.amin(1))


def _zeros(x: Tensor) -> Tensor:
    """Zeros in each row: eight at a time are added, in the bytes of one number, which hold up to 255."""
    words = _scratch(x.device)[: len(x)].copy_(x).view(torch.int64).sum(1)
    return (WIDTH - words.view(torch.uint8).view(len(x), 8).sum(1)).to(x.dtype)


_threads = threading.local()


def _scratch(device: torch.device) -> Tensor:
    """Kept, so that no memory is asked for in each step; each thread has its own."""
    kept: dict[torch.device, Tensor] = vars(_threads).setdefault("scratch", {})
    if device not in kept:
        kept[device] = torch.empty(CACHED, WIDTH, dtype=torch.bool, device=device)
    return kept[device]


def _stats_finish(sums: Tensor, padding: Tensor, numel: Tensor, largest: Tensor) -> dict[str, Tensor]:
    total, squares, zeros, nonfinite = sums
    return {
        "numel": numel.clone(), "total": total, "norm": squares.sqrt(), "abs_max": largest, "zeros": zeros - padding,
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


def _exponents(x: Tensor) -> Tensor:
    """The bits of each number's exponent, without its sign."""
    if x.dtype == torch.float32:
        return (x.view(torch.int32) >> 23).to(torch.uint8)  # which drops the sign
    return ((x.view(torch.int64) >> 52) & 0x7FF).to(torch.int16)


@cache
def _bins(dtype: torch.dtype) -> list[int]:
    """Of the exponent's bits, the bin; what is not finite has them all set, and none."""
    kinds, bias = (256, 127) if dtype == torch.float32 else (2048, 1023)
    return [min(max(kind - bias - LOWEST, 0), BINS - 1) for kind in range(kinds - 1)] + [-1]


_magnitudes = Bins("bins", _exponents, _bins)


def _measure_histogram(x: Tensor) -> dict[str, Tensor]:
    x = wide(x)
    into = _magnitudes.start(1, x.device)
    _magnitudes.add(into, (_exponents(x.contiguous()), x.dtype), 0)
    return {"bins": into["counts"][0]}


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


histogram.together = partial(Together, _magnitudes)
