"""Define the modifiers: actions whose returned tensor replaces the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, cast

import msgspec
import torch
from torch import Tensor

from tenterhook.actions.batched import ChangeTogether
from tenterhook.actions.context import Context
from tenterhook.actions.definition import FORWARD_POINTS, GRADIENT_POINTS, MODIFIABLE_POINTS, PARAMETER_POINTS
from tenterhook.actions.registry import BUILTIN, action
from tenterhook.actions.row_measures import widen
from tenterhook.actions.stats import measure_norm
from tenterhook.torch_internals import foreach_clamp_max_, foreach_clamp_min_, foreach_mul_, foreach_norm

Positive = Annotated[float, msgspec.Meta(gt=0)]
Fraction = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Over = Literal["target", "hook"]

#: added to a norm before the division, as in torch.nn.utils.clip_grad_norm_
EPSILON = 1e-6


@action("scale", registry=BUILTIN, at=MODIFIABLE_POINTS, modifies=True, elementwise=True)
def scale(x: Tensor, /, by: float) -> Tensor:
    """Multiply each element by a factor.

    Args:
        by: The factor.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: `by` is missing or is not a number.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> x = torch.ones(2, requires_grad=True)
        >>> handle = th.hook(x, th.scale(3.0))
        >>> x.sum().backward()
        >>> x.grad
        tensor([3., 3.])
    """
    return x * by


def _scale_together(tensors: list[Tensor], merged: Mapping[str, Tensor], values: list[Tensor], /, by: float) -> None:
    whole = [one for one in tensors if one.dtype in (torch.float32, torch.float64)]
    if whole:
        foreach_mul_(whole, by)
    for one in tensors if len(whole) < len(tensors) else ():
        if one.dtype not in (torch.float32, torch.float64):  # the operation on a list would round the factor
            one.copy_(one * by)


scale.together = ChangeTogether(_scale_together)


@action("clip_value", registry=BUILTIN, at=MODIFIABLE_POINTS, modifies=True, elementwise=True)
def clip_value(x: Tensor, /, max: Positive) -> Tensor:
    """Clamp each element to the range from `-max` to `max`.

    Args:
        max: Largest magnitude that is left unchanged.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: `max` is missing or is not positive.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> x = torch.ones(2, requires_grad=True)
        >>> handle = th.hook(x, th.clip_value(1.0))
        >>> (x * torch.tensor([0.5, -4.0])).sum().backward()
        >>> x.grad
        tensor([ 0.5000, -1.0000])
    """
    return x.clamp(-max, max)


def _clip_values_together(
    tensors: list[Tensor], merged: Mapping[str, Tensor], values: list[Tensor], /, max: float
) -> None:
    foreach_clamp_min_(tensors, -max)
    foreach_clamp_max_(tensors, max)


clip_value.together = ChangeTogether(_clip_values_together)


@action(
    "clip_norm",
    registry=BUILTIN,
    at=MODIFIABLE_POINTS,
    modifies=True,
    measure=measure_norm,
    partials={"norm": "norm"},
)
def clip_norm(x: Tensor, ctx: Context, /, max: Positive, *, over: Over = "target") -> Tensor:
    """Clip the norm of each gradient, or the total norm of all gradients of the hook.

    If the norm exceeds `max`, the gradient is scaled down to the norm `max`, as in `torch.nn.utils.clip_grad_norm_`.
    The norm of a sharded tensor is the norm of the whole tensor.

    Args:
        max: Largest norm that is left unchanged.
        over: `"target"` clips each gradient by its own norm. `"hook"` clips all gradients of the hook by their total
            norm, and is allowed only at `grad_final`.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: `max` is missing or is not positive, or `over` is unknown.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> x = torch.ones(2, requires_grad=True)
        >>> handle = th.hook(x, th.clip_norm(1.0))
        >>> (x * torch.tensor([3.0, 4.0])).sum().backward()
        >>> x.grad
        tensor([0.6000, 0.8000])
    """
    coefficient = (max / (ctx.merged["norm"] + EPSILON)).clamp(max=1.0)
    return x * coefficient.to(x.dtype)


def _norms_together(tensors: list[Tensor]) -> dict[str, Tensor]:
    """Return the norm of each tensor, each computed in a dtype that is precise enough for sums."""
    return {"norm": torch.stack(list(foreach_norm([widen(one) for one in tensors])))}


def _clip_norms_together(
    tensors: list[Tensor],
    merged: Mapping[str, Tensor],
    values: list[Tensor],
    /,
    max: float,
    *,
    over: Over = "target",
) -> None:
    coefficients = (max / (merged["norm"] + EPSILON)).clamp(max=1.0)
    for dtype in {one.dtype for one in tensors}:
        some = [at for at, one in enumerate(tensors) if one.dtype is dtype]
        given = coefficients.to(dtype)
        factors = given.reshape(()) if over == "hook" else [given[at] for at in some]
        foreach_mul_([tensors[at] for at in some], factors)


clip_norm.together = ChangeTogether(_clip_norms_together, _norms_together)


@action("clip_adaptive", registry=BUILTIN, at=PARAMETER_POINTS, modifies=True, needs_value=True)
def clip_adaptive(x: Tensor, ctx: Context, /, ratio: Positive = 0.01, *, floor: Positive = 1e-3) -> Tensor:
    """Clip the norm of each gradient row to a fraction of the norm of the corresponding parameter row.

    This is adaptive gradient clipping (AGC). A row of a tensor `x` is the slice `x[i]`. A one-dimensional parameter
    counts as one row. Parameters that are sharded over ranks are refused.

    Args:
        ratio: Maximum ratio of the norm of a gradient row to the norm of the corresponding parameter row.
        floor: Lower limit for the norm of a parameter row, so that rows near zero can still be trained.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: `ratio` or `floor` is not positive.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> _ = torch.nn.init.constant_(model.weight, 1.0)
        >>> rig = th.attach(model, th.Hook("clip", on="weight", at="grad", do=th.clip_adaptive(ratio=0.5)))
        >>> model(torch.tensor([[30.0, 40.0]])).sum().backward()
        >>> model.weight.grad
        tensor([[0.4243, 0.5657]])
    """
    limit = _row_norms(ctx.value).clamp(min=floor) * ratio
    norm = _row_norms(x)
    return torch.where(norm > limit, x * (limit / norm.clamp(min=EPSILON)), x)


def _clip_adaptively_together(
    tensors: list[Tensor],
    merged: Mapping[str, Tensor],
    values: list[Tensor],
    /,
    ratio: float = 0.01,
    *,
    floor: float = 1e-3,
) -> None:
    for dtype in {one.dtype for one in tensors}:
        some = [at for at, one in enumerate(tensors) if one.dtype is dtype]
        norms = [_row_norms(tensors[at]) for at in some]
        norm = torch.cat([one.reshape(-1) for one in norms])
        limit = torch.cat([_row_norms(values[at]).reshape(-1) for at in some]).clamp(min=floor) * ratio
        factors = torch.where(norm > limit, limit / norm.clamp(min=EPSILON), 1.0).to(dtype)
        rows = factors.split([one.numel() for one in norms])
        foreach_mul_([tensors[at] for at in some], [one.view_as(norm) for one, norm in zip(rows, norms, strict=True)])


clip_adaptive.together = ChangeTogether(_clip_adaptively_together)


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
    /,
    z: Positive = 2.5,
    *,
    alpha: Fraction = 0.97,
    warmup: Annotated[int, msgspec.Meta(ge=1)] = 25,
    over: Over = "target",
) -> Tensor:
    """Clip the norm of a gradient to at most `z` standard deviations above the running mean of the norm.

    The running mean and variance are updated with the clipped norm, unless the norm is not finite. They are saved in
    checkpoints.

    Args:
        z: Number of standard deviations by which a norm may exceed the running mean.
        alpha: Weight of past norms in the running mean and variance, between 0 and 1.
        warmup: Number of finite norms to average before clipping begins.
        over: `"target"` clips each gradient by its own norm. `"hook"` clips all gradients of the hook by their total
            norm, and is allowed only at `grad_final`.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: A parameter is outside its range, or `over` is unknown.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> rig = th.attach(model, th.Hook("clip", on="weight", at="grad", do=th.clip_zscore(z=2.0, warmup=3)))
        >>> for x in (1.0, 1.1, 0.9, 100.0):
        ...     model.weight.grad = None
        ...     model(torch.tensor([[x]])).sum().backward()
        >>> model.weight.grad
        tensor([[1.1633]])
    """
    norm = ctx.merged["norm"].double()
    mean, var, seen = ctx.state["mean"], ctx.state["var"], ctx.state["seen"]
    limit = torch.where(seen >= warmup, mean + z * var.sqrt(), torch.inf)
    clipped = torch.minimum(norm, limit)
    keep = (seen / (seen + 1)).clamp(max=alpha)  # a plain average at first, because an EMA from zero is biased
    step = clipped - mean
    finite = torch.isfinite(norm)
    ctx.state["var"] = torch.where(finite, keep * (var + (1 - keep) * step * step), var)
    ctx.state["mean"] = torch.where(finite, keep * mean + (1 - keep) * clipped, mean)
    ctx.state["seen"] = seen + finite
    return x * torch.where(clipped < norm, clipped / (norm + EPSILON), 1.0).to(x.dtype)


@action("mask", registry=BUILTIN, at=MODIFIABLE_POINTS, modifies=True)
def mask(x: Tensor, /, by: Tensor | str) -> Tensor:
    """Multiply the value by a tensor, for example a mask that freezes some elements.

    Args:
        by: The tensor, which must be broadcastable to the shape of the value, or its name in `th.attach(tensors=...)`.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: `by` is missing, or is neither a tensor nor a name.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> x = torch.ones(2, requires_grad=True)
        >>> handle = th.hook(x, th.mask(torch.tensor([1.0, 0.0])))
        >>> x.sum().backward()
        >>> x.grad
        tensor([1., 0.])
    """
    return x * cast(Tensor, by)


@action("reverse", registry=BUILTIN, at=GRADIENT_POINTS, modifies=True, elementwise=True)
def reverse(x: Tensor, /, by: float = 1.0) -> Tensor:
    """Multiply a gradient by `-by` (gradient reversal).

    Args:
        by: Number whose negative is the factor.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: `by` is not a number.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> x = torch.ones(2, requires_grad=True)
        >>> handle = th.hook(x, th.reverse())
        >>> x.sum().backward()
        >>> x.grad
        tensor([-1., -1.])
    """
    return x * -by


@action("noise", registry=BUILTIN, at=MODIFIABLE_POINTS, modifies=True)
def noise(x: Tensor, ctx: Context, /, std: Positive, *, seed: int = 0) -> Tensor:
    """Add Gaussian noise from the hook's random generator.

    The state of the generator is saved in checkpoints. PyTorch's global generators are not used. At forward points, all
    calls of a target within one forward pass receive the same noise.

    Args:
        std: Standard deviation of the noise.
        seed: Seed of the generator.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: `std` is missing or is not positive.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> x = torch.zeros(1000, requires_grad=True)
        >>> handle = th.hook(x, th.noise(0.1))
        >>> x.sum().backward()
        >>> 0.09 < x.grad.std().item() < 0.11
        True
    """
    generator = ctx.generator(seed, x.device)
    return x + torch.randn(x.shape, dtype=x.dtype, device=x.device, generator=generator) * std


@action("nan_to_num", registry=BUILTIN, at=MODIFIABLE_POINTS, modifies=True, elementwise=True)
def nan_to_num(x: Tensor, /, nan: float = 0.0, *, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Replace NaN and infinities, as `torch.nan_to_num` does.

    Args:
        nan: Number that replaces NaN.
        posinf: Number that replaces positive infinity. The default is the largest finite value of the dtype.
        neginf: Number that replaces negative infinity. The default is the lowest (most negative) finite value of the
            dtype.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: A parameter is not a number.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> x = torch.zeros(2, requires_grad=True)
        >>> handle = th.hook(x, th.nan_to_num())
        >>> (x * torch.tensor([1.0, float("nan")])).sum().backward()
        >>> x.grad
        tensor([1., 0.])
    """
    return torch.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


@action("steer", registry=BUILTIN, at=FORWARD_POINTS, modifies=True)
def steer(x: Tensor, /, by: Tensor | str, *, scale: float = 1.0) -> Tensor:
    """Add a tensor, for example a steering vector, to an activation.

    Args:
        by: The tensor, which must be broadcastable to the shape of the value, or its name in `th.attach(tensors=...)`.
        scale: Factor by which the tensor is multiplied before it is added.

    Returns:
        An action for `Hook(do=...)`.

    Raises:
        ActionError: `by` is missing or is neither a tensor nor a name, or `scale` is not a number.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Identity()
        >>> steer = th.steer(torch.tensor([0.0, 1.0]), scale=2.0)
        >>> rig = th.attach(model, th.Hook("steer", on=".", at="output", do=steer))
        >>> model(torch.ones(2))
        tensor([1., 3.])
    """
    return x + scale * cast(Tensor, by)
