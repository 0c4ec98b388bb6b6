"""Attach: a plan is resolved, room is made, a rig is put up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook.actions import DEFAULT, Registry
from tenterhook.errors import AttachedError, ResolveError
from tenterhook.plan import Hook, Plan
from tenterhook.record import Sinks
from tenterhook.resolve.agreement import accord
from tenterhook.resolve.model_view import Ground
from tenterhook.resolve.resolution import resolve
from tenterhook.resolve.targets import Optimizers, named_optimizers
from tenterhook.rig.rig import Rig, uncollected
from tenterhook.rig.root_hooks import rigs_on


def attach(
    model: nn.Module,
    plan: Plan | Hook | Iterable[Hook],
    *,
    optimizer: Optimizers = None,
    clock: str | Optimizer | None = None,
    sinks: Sinks = (),
    actions: Registry = DEFAULT,
    tensors: Mapping[str, Tensor] | None = None,
    replace: bool = False,
) -> Rig:
    """Install a plan on a model: all of it, or nothing and an error that says why.

    `clock` names the optimizer whose step ends a step, of several the last. `replace=True` takes the place of hooks
    of the same id.
    """
    check_module(model)
    if isinstance(plan, str | Path):
        raise ResolveError(f"the plan is the text {str(plan)!r}", remedy="read the file: th.Plan.load(path)")
    plan = plan if isinstance(plan, Plan) else Plan([plan] if isinstance(plan, Hook) else plan)
    optimizers = named_optimizers(optimizer)
    ticking = clock_name(optimizers, clock)
    with uncollected():
        ground = Ground(model, optimizers)
        claims = accord("attach", partial(resolve, plan.hooks, ground, actions=actions, tensors=tensors or {}), ground)
    make_room(model, plan, replace=replace)
    return Rig(model, plan, claims, ground, clock=ticking, sinks=sinks, actions=actions, tensors=tensors)


def check_module(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise ResolveError(f"a {type(model).__name__} is not a module", remedy="th.attach(model, plan, optimizer=...)")


def make_room(model: nn.Module, plan: Plan, *, replace: bool) -> None:
    wanted = {hook.id for hook in plan}
    for rig in rigs_on(model):
        for id in wanted.intersection(rig.ledger):
            if not replace:
                raise AttachedError(
                    "a hook of this id is on the model already",
                    hook=id,
                    remedy="attach(..., replace=True) swaps it; th.detach(model) removes all",
                )
            rig.remove(id)


def clock_name(optimizers: Mapping[str, Optimizer], clock: str | Optimizer | None) -> str | None:
    if clock is None:
        return next(reversed(list(optimizers)), None)
    for name, optimizer in optimizers.items():
        if clock is optimizer or clock in (name, name.removeprefix("optimizer.")):
            return name
    raise ResolveError(
        f"clock={clock!r} is none of the optimizers",
        remedy=f"name one of {', '.join(map(repr, optimizers)) or 'none'}",
    )
