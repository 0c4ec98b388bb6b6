"""`find_nonfinite`: raise at the first module that makes a NaN or an infinity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tenterhook.actions import Context
from tenterhook.errors import NonFiniteError
from tenterhook.plan import Hook
from tenterhook.resolve.targets import walk
from tenterhook.rig.api.attach import attach
from tenterhook.rig.compiled.graph_cache import is_compiled
from tenterhook.rig.rig import Rig


def _in_place(model: nn.Module) -> list[str]:
    """A module that works in place has no gradient of its input left to look at."""
    return [f"!{name}" for name, module in walk(model) if getattr(module, "inplace", False)]


@contextmanager
def find_nonfinite(model: nn.Module) -> Iterator[Rig]:
    """Raise NonFiniteError where the first NaN or infinity is made, forward or backward. It waits for each value."""
    seen: dict[str, tuple[Tensor, ...]] = {}
    #: infinities that may be meant, as a mask before a softmax is: they are told once something comes of them
    infinite: list[NonFiniteError] = []

    def at_input(x: Tensor, ctx: Context) -> None:
        if ctx.leaf == 0:
            seen[ctx.target] = ()
            if ctx.target == ".":
                infinite.clear()
        seen[ctx.target] = (*seen[ctx.target], x.detach())
        if _has_nan(x):
            outer = "what the model was given" if ctx.target == "." else "made by code between modules, before this one"
            raise _nonfinite(f"an input is NaN: {outer}", ctx, x, seen[ctx.target])

    def at_output(x: Tensor, ctx: Context) -> None:
        inputs = seen.get(ctx.target, ())
        bad, fed = _bad(x), any(map(_bad, inputs))
        if fed and not bad:
            infinite.clear()
        elif bad and not fed:
            infinite.append(_nonfinite("the first output that is not finite", ctx, x, inputs))
        if _has_nan(x) or (bad and ctx.target == "." and infinite):
            raise (infinite or [_nonfinite("the first output that is not finite", ctx, x, inputs)])[0]

    def at_gradient(x: Tensor, ctx: Context) -> None:
        if _bad(x):
            if infinite:
                raise infinite[0]
            what = {
                "grad_output": "made after this module, by what uses its output",
                "grad_input": "made by this module's backward",
                "grad": "made by the backward of the module that owns it",
            }[ctx.point]
            raise _nonfinite(f"the first gradient that is not finite: {what}", ctx, x, ())

    everything = (".", "**")
    hooks = [
        Hook("nonfinite.input", on=everything, at="input", do=at_input),
        Hook("nonfinite.output", on=everything, at="output", do=at_output),
        Hook("nonfinite.grad_output", on=everything, at="grad_output", do=at_gradient),
    ]
    if not is_compiled(model):  # compiled code does not have it; grad_output of the module before then tells
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
    went_in = f"; its inputs reach {largest:.3g}" if largest is not None else ""
    remedies = {
        "input": "look at the code that calls this module, and at .inputs of this error",
        "output": "look at .inputs of this error, and at the parameters of the target",
        "grad_output": "look at the loss, and at what follows this module",
    }
    return NonFiniteError(
        f"{fact} ({nan} NaN and {inf} infinite of {flat.numel()}){went_in}",
        inputs=inputs,
        target=ctx.target,
        point=ctx.point,
        remedy=remedies.get(ctx.point, "look at what this module computes: a root, a logarithm or a quotient at zero"),
    )
