"""Actions that change the value they are given, by returning a new one."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import torch
from torch import Tensor

from tenterhook.actions.context import Context
from tenterhook.actions.registry import (
    BUILTIN,
    FORWARD_POINTS,
    GRADIENT_POINTS,
    MODIFIABLE_POINTS,
    PARAMETER_POINTS,
    action,
)
from tenterhook.actions.stats import measure_norm

Positive = Annotated[float, msgspec.Meta(gt=0)]
Fraction = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Over = Literal["target", "hook"]

#: added to a norm before dividing by it, as torch.nn.utils.clip_grad_norm_ does
EPSILON = 1e-6


@action("scale", registry=BUILTIN, at=MODIFIABLE_POINTS, modifies=True, elementwise=True)
def scale(x: Tensor, *, by: float) -> Tensor:
    """Multiply by `by`."""
    return x * by


@action("clip_value", registry=BUILTIN, at=MODIFIABLE_POINTS, modifies=True, elementwise=True)
def clip_value(x: Tensor, *, max: Positive) -> Tensor:
    """Clamp each element to -max .. max."""
    return x.clamp(-max, max)


@action(
    "clip_norm",
    registry=BUILTIN,
    at=MODIFIABLE_POINTS,
    modifies=True,
    measure=measure_norm,
    partials={"norm": "norm"},
)
def clip_norm(x: Tensor, ctx: Context, *, max: Positive, over: Over = "target") -> Tensor:
    """Scale down so that the norm, of the target or of all the hook's targets, is at most max."""
    coefficient = (max / (ctx.merged["norm"] + EPSILON)).clamp(max=1.0)
    return x * coefficient.to(x.dtype)


@action("clip_adaptive", registry=BUILTIN, at=PARAMETER_POINTS, modifies=True, needs_value=True)
def clip_adaptive(x: Tensor, ctx: Context, *, ratio: Positive = 0.01, floor: Positive = 1e-3) -> Tensor:
    """Scale each row's gradient down to at most `ratio` times the row's weight norm: adaptive gradient clipping."""
    limit = _row_norms(ctx.value).clamp(min=floor) * ratio
    norm = _row_norms(x)
    return torch.where(norm > limit, x * (limit / norm.clamp(min=EPSILON)), x)


def _row_norms(x: Tensor) -> Tensor:
    rows: Tensor = x.reshape(1, -1) if x.dim() <= 1 else x.flatten(1)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.reshape(-1, *[1] * (x.dim() - 1)) if x.dim() > 1 else norms.squeeze()


@action(
    "clip_zscore",
    registry=BUILTIN,
    at=GRADIENT_POINTS,
    modifies=True,
    measure=measure_norm,
    partials={"norm": "norm"},
    state={"mean": 0.0, "var": 0.0, "seen": 0.0},
)
def clip_zscore(
    x: Tensor,
    ctx: Context,
    *,
    z: Positive = 2.5,
    alpha: Fraction = 0.97,
    warmup: Annotated[int, msgspec.Meta(ge=1)] = 25,
    over: Over = "target",
) -> Tensor:
    """Scale down so that the norm is at most `z` deviations above its running mean, once `warmup` were seen."""
    norm = ctx.merged["norm"].double()
    mean, var, seen = ctx.state["mean"], ctx.state["var"], ctx.state["seen"]
    limit = torch.where(seen >= warmup, mean + z * var.sqrt(), torch.inf)
    clipped = torch.minimum(norm, limit)
    keep = (seen / (seen + 1)).clamp(max=alpha)  # a plain average at first: an EMA from zero is too sure of itself
    step = clipped - mean
    finite = torch.isfinite(norm)
    ctx.state["var"] = torch.where(finite, keep * (var + (1 - keep) * step * step), var)
    ctx.state["mean"] = torch.where(finite, keep * mean + (1 - keep) * clipped, mean)
    ctx.state["seen"] = seen + finite
    return x * torch.where(clipped < norm, clipped / (norm + EPSILON), 1.0).to(x.dtype)


@action("mask", registry=BUILTIN, at=MODIFIABLE_POINTS, modifies=True)
def mask(x: Tensor, *, by: Tensor) -> Tensor:
    """Multiply by the tensor that `by` names, given to attach(tensors=...)."""
    return x * by


@action("reverse", registry=BUILTIN, at=GRADIENT_POINTS, modifies=True, elementwise=True)
def reverse(x: Tensor, *, by: float = 1.0) -> Tensor:
    """Multiply by `-by`: gradient reversal."""
    return x * -by


@action("noise", registry=BUILTIN, at=MODIFIABLE_POINTS, modifies=True)
def noise(x: Tensor, ctx: Context, *, std: Positive, seed: int = 0) -> Tensor:
    """Add normal noise from the hook's own generator; at forward points every call of one forward gets the same."""
    generator = ctx.generator(seed, x.device)
    return x + torch.randn(x.shape, dtype=x.dtype, device=x.device, generator=generator) * std


@action("nan_to_num", registry=BUILTIN, at=MODIFIABLE_POINTS, modifies=True, elementwise=True)
def nan_to_num(x: Tensor, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Replace NaN and infinities; by default infinities become the largest finite numbers."""
    return torch.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


@action("steer", registry=BUILTIN, at=FORWARD_POINTS, modifies=True)
def steer(x: Tensor, *, by: Tensor, scale: float = 1.0) -> Tensor:
    """Add `scale` times the tensor that `by` names, given to attach(tensors=...)."""
    return x + scale * by
