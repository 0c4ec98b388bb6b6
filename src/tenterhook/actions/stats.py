"""Compute statistics for tensors.

Partial results are merged over calls, over the tensors of a call and over shards. The statistics are computed from the
merged results.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from functools import cache, partial

import torch
from torch import Tensor

from tenterhook.actions.batched import PackedMeasure
from tenterhook.actions.definition import TENSOR_POINTS, Partial
from tenterhook.actions.registry import BUILTIN, action
from tenterhook.actions.row_measures import CACHED_ROWS, ROW_WIDTH, RowBins, Rows, RowTotals, widen
from tenterhook.errors import ContractError
from tenterhook.plan.histogram import BINS, LOWEST_EXPONENT


def as_measurable(x: Tensor) -> Tensor:
    """Return `x` in a dtype that is precise enough for sums, or raise an error for a complex or sparse tensor."""
    if x.is_complex() or x.layout is not torch.strided:
        raise unmeasurable(x)
    return widen(x)


def unmeasurable(x: Tensor) -> ContractError:
    """Return the error for a tensor that statistics do not support."""
    return ContractError(
        f"statistics do not support {'complex' if x.is_complex() else 'sparse'} tensors",
        remedy="exclude the target, or use your own function as the action",
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
    # Check this only on the CPU, because reading a number from another device would wait for that device.
    all_finite = x.device.type == "cpu" and math.isfinite(norms.sum().item())
    nonfinite = torch.zeros_like(norms) if all_finite else ROW_WIDTH - torch.isfinite(x).sum(1)
    return x.sum(1), norms.square(), _zeros(x), nonfinite.to(norms.dtype), torch.maximum(x.amax(1), -x.amin(1))


def _zeros(x: Tensor) -> Tensor:
    """Count the zeros in each row.

    The nonzero elements of a row are counted eight at a time: each byte of an int64 is a counter with a maximum of 255.
    """
    words = _scratch(x.device)[: len(x)].copy_(x).view(torch.int64).sum(1)
    return (ROW_WIDTH - words.view(torch.uint8).view(len(x), 8).sum(1)).to(x.dtype)


_threads = threading.local()


def _scratch(device: torch.device) -> Tensor:
    """Return this thread's buffer, which is reused to avoid a memory allocation in each step."""
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
    """Compute statistics for the value over all calls in a step.

    The recorded numbers are `norm`, `rms`, `mean`, `abs_max` (the largest magnitude), `zeros` (the fraction of elements
    that are 0) and `nonfinite` (the number of elements that are NaN or infinite).

    Returns:
        An action for `Hook(do=...)`.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> rig = th.attach(model, th.Hook("grads", on="**", at="grad", do=th.stats()))
        >>> model(torch.tensor([[0.0, 2.0]])).sum().backward()
        >>> numbers = rig.values("grads")["weight"]
        >>> numbers["norm"], numbers["mean"], numbers["abs_max"], numbers["zeros"], numbers["nonfinite"]
        (2.0, 1.0, 2.0, 0.5, 0.0)
    """
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
    """Return the exponent bits of each number, without the sign bit."""
    if x.dtype == torch.float32:
        return (x.view(torch.int32) >> 23).to(torch.uint8)  # the conversion to 8 bits drops the sign
    return ((x.view(torch.int64) >> 52) & 0x7FF).to(torch.int16)


@cache
def _bin_of_exponent(dtype: torch.dtype) -> list[int]:
    """Return the bin of each raw exponent, or -1 for the exponent with all bits set, which encodes nonfinite values."""
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
    """Count the magnitudes of the elements in 64 bins, one for each power of two.

    Bin `i` counts magnitudes from `2**(i - 40)` up to, but not including, `2**(i - 39)`. The first bin also counts
    smaller magnitudes and zeros, and the last bin also counts larger magnitudes. NaN and infinities are not counted.
    The recorded list is named `bins`.

    Returns:
        An action for `Hook(do=...)`.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> rig = th.attach(model, th.Hook("sizes", on="**", at="grad", do=th.histogram()))
        >>> model(torch.tensor([[1.0, 3.0]])).sum().backward()
        >>> rig.vectors("sizes")["weight"]["bins"][40:43]
        [1.0, 1.0, 0.0]
    """
    return {"bins": merged["bins"]}


histogram.batched = partial(PackedMeasure, _magnitudes)
