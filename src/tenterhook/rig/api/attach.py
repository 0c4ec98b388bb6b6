"""`attach`: resolve a plan, check that its ids are free, install it."""

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
from tenterhook.resolve.agreement import resolve_on_all_ranks
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.resolution import resolve
from tenterhook.resolve.targets import Optimizers, named_optimizers
from tenterhook.rig.rig import Rig, gc_paused, rigs_on


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
    clock = clock_name(optimizers, clock)
    with gc_paused():
        view = ModelView(model, optimizers)
        find = partial(resolve, plan.hooks, view, actions=actions, tensors=tensors or {})
        resolution = resolve_on_all_ranks("attach", find)
    free_ids(model, plan, replace=replace)
    return Rig(model, plan, resolution, clock=clock, sinks=sinks, actions=actions, tensors=tensors)


def check_module(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise ResolveError(f"a {type(model).__name__} is not a module", remedy="th.attach(model, plan, optimizer=...)")


def free_ids(model: nn.Module, plan: Plan, *, replace: bool) -> None:
    """Raise if a rig on the model has a hook of the same id, or remove that hook."""
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
    """Return the name of the optimizer whose steps are counted: the one given, else the last."""
    if clock is None:
        return next(reversed(list(optimizers)), None)
    for name, optimizer in optimizers.items():
        if clock is optimizer or clock in (name, name.removeprefix("optimizer.")):
            return name
    raise ResolveError(
        f"clock={clock!r} is none of the optimizers",
        remedy=f"name one of {', '.join(map(repr, optimizers)) or 'none'}",
    )
