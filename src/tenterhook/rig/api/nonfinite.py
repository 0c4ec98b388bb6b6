"""Find the first module that produces a NaN or an infinity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tenterhook.actions import Context
from tenterhook.errors import NonFiniteError
from tenterhook.plan import Hook
from tenterhook.resolve.targets import walk
from tenterhook.rig.api.attach import attach, check_module
from tenterhook.rig.compiled.graph_cache import is_compiled
from tenterhook.rig.rig import Rig


def _in_place(model: nn.Module) -> list[str]:
    """Return patterns that exclude in-place modules, because `grad_input` hooks do not support them."""
    return [f"!{name}" for name, module in walk(model) if getattr(module, "inplace", False)]


@contextmanager
def find_nonfinite(model: nn.Module) -> Iterator[Rig]:
    """Raise an error where the first NaN or infinity occurs in a forward or backward pass.

    An infinity is reported only if it spreads, because it may be intentional, as in a mask before a softmax. The search
    synchronizes with the device at every value, so use it only for debugging, not in normal training.

    Args:
        model: The model.

    Yields:
        A rig that is detached at the end of the block.

    Raises:
        NonFiniteError: A value is not finite. The error names the module or parameter, and its `inputs` attribute
            contains the module's inputs.
        ResolveError: The model cannot be hooked.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(1, 1))
        >>> _ = torch.nn.init.constant_(model[1].weight, float("nan"))
        >>> try:
        ...     with th.find_nonfinite(model):
        ...         _ = model(torch.ones(1, 1))
        ... except th.NonFiniteError as error:
        ...     print(error.target, error.point)
        1 output
    """
    check_module(model, "th.find_nonfinite(model)")
    seen: dict[str, tuple[Tensor, ...]] = {}
    #: infinite outputs; reported only if a NaN, an infinite output of the model or a nonfinite gradient follows
    infinite: list[NonFiniteError] = []

    def at_input(x: Tensor, ctx: Context) -> None:
        if ctx.leaf == 0:
            seen[ctx.target] = ()
            if ctx.target == ".":
                infinite.clear()
        seen[ctx.target] = (*seen[ctx.target], x.detach())
        if _has_nan(x):
            outer = "the caller passed it" if ctx.target == "." else "code before this module produced it"
            raise _nonfinite(f"an input is NaN: {outer}", ctx, x, seen[ctx.target])

    def at_output(x: Tensor, ctx: Context) -> None:
        inputs = seen.get(ctx.target, ())
        bad, fed = _bad(x), any(map(_bad, inputs))
        if fed and not bad:
            infinite.clear()
        elif bad and not fed:
            infinite.append(_nonfinite("this is the first output that is not finite", ctx, x, inputs))
        if _has_nan(x) or (bad and ctx.target == "." and infinite):
            raise (infinite or [_nonfinite("this is the first output that is not finite", ctx, x, inputs)])[0]

    def at_gradient(x: Tensor, ctx: Context) -> None:
        if _bad(x):
            if infinite:
                raise infinite[0]
            what = {
                "grad_output": "code that uses this module's output produced it",
                "grad_input": "this module's backward pass produced it",
                "grad": "the backward pass of the module that owns this parameter produced it",
            }[ctx.point]
            raise _nonfinite(f"this is the first gradient that is not finite: {what}", ctx, x, ())

    everything = (".", "**")
    hooks = [
        Hook("nonfinite.input", on=everything, at="input", do=at_input),
        Hook("nonfinite.output", on=everything, at="output", do=at_output),
        Hook("nonfinite.grad_output", on=everything, at="grad_output", do=at_gradient),
    ]
    if not is_compiled(model):  # compiled code has no grad_input; the previous module's grad_output finds it
        hooks.append(Hook("nonfinite.grad_input", on=(*everything, *_in_place(model)), at="grad_input", do=at_gradient))
    if any(True for _ in model.parameters()):
        hooks.append(Hook("nonfinite.grad", on="**", at="grad", do=at_gradient))
    with attach(model, hooks) as rig:
        yield rig


def _dense(x: Tensor) -> Tensor:
    return x.coalesce().values() if x.is_sparse else x


def _bad(x: Tensor) -> bool:
    return not bool(torch.isfinite(_dense(x)).all())


def _has_nan(x: Tensor) -> bool:
    return bool(torch.isnan(_dense(x)).any())


def _nonfinite(fact: str, ctx: Context, x: Tensor, inputs: tuple[Tensor, ...]) -> NonFiniteError:
    flat = _dense(x.detach()).flatten()
    nan, inf = int(torch.isnan(flat).sum()), int(torch.isinf(flat).sum())
    largest = max((float(i.abs().max()) for i in inputs if i.numel() and i.is_floating_point()), default=None)
    went_in = f". The largest magnitude of its inputs is {largest:.3g}" if largest is not None else ""
    remedies = {
        "input": "check the code that calls this module, and the .inputs of this error",
        "output": "check the .inputs of this error, and the parameters of the target",
        "grad_output": "check the loss, and the code that follows this module",
    }
    return NonFiniteError(
        f"{fact} ({nan} NaN and {inf} infinite values out of {flat.numel()}){went_in}",
        inputs=inputs,
        target=ctx.target,
        point=ctx.point,
        remedy=remedies.get(ctx.point, "check for a division by zero, or for a square root or logarithm of zero"),
    )
