"""Restore: the saved plan and its running state, on a new model."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook.actions import DEFAULT, Registry
from tenterhook.errors import ActionError, RefusedError, StateError, TenterhookError
from tenterhook.plan import Plan
from tenterhook.record import Sinks
from tenterhook.resolve.agreement import agreed
from tenterhook.resolve.model_view import Ground
from tenterhook.resolve.resolution import Claim, resolve
from tenterhook.resolve.targets import Optimizers, device_of, named_optimizers
from tenterhook.rig.api.attach import check_module, clock_name, make_room
from tenterhook.rig.rig import Rig, uncollected
from tenterhook.rig.saved.format import Room, Saved, read
from tenterhook.rig.saved.load_report import Kind, Report
from tenterhook.rig.saved.loader import Kept, compare, compare_clocks, compare_tensors
from tenterhook.rig.saved.renaming import Renaming

#: differences after which the rest of a plan is not compared
MAX_DIFFERENCES = 32


def restore(
    model: nn.Module,
    state: Mapping[str, Tensor],
    *,
    optimizer: Optimizers = None,
    clock: str | Optimizer | None = None,
    sinks: Sinks = (),
    actions: Registry = DEFAULT,
    tensors: Mapping[str, Tensor] | None = None,
    rename: Mapping[str, str] | None = None,
    strict: bool = True,
    replace: bool = False,
) -> Rig:
    """Attach the plan that `rig.state_dict()` saved, with all running state: all of it, or nothing and an error.

    `rename` carries it to new names: {"encoder": "backbone"}. `strict=False` takes what fits and warns of the rest.
    The program must have defined the actions it names: nothing is imported.
    """
    check_module(model)
    ranks.barrier("restore")
    with uncollected():
        optimizers = named_optimizers(optimizer)
        ground = Ground(model, optimizers)
    saved = ranks.all_or_none(partial(_read, state, ground, model))
    renaming, report = Renaming(rename), Report()
    counted = saved.header.clock.optimizer
    ticking = clock_name(optimizers, counted if clock is None and counted in optimizers else clock)
    compare_clocks(saved, list(optimizers), counted if clock is not None else ticking, report)
    device = device_of(model)
    given = {name: tensor.to(device, copy=True) for name, tensor in saved.tensors.items()} | dict(tensors or {})
    compare_tensors(saved, tensors or {}, report.notes.append)
    with uncollected():
        claims = agreed("restore", _resolved(saved, ground, renaming, report, actions, given), ground)
        kept = ranks.all_or_none(partial(_compared, saved, claims, renaming, report, model, strict=strict))
    if report:
        warnings.warn(f"tenterhook restores what fits: {report}", RuntimeWarning, stacklevel=2)
    claims = tuple(_ordered(claim, kept.get(claim.hook.id)) for claim in claims)
    plan = Plan(claim.hook for claim in claims)
    make_room(model, plan, replace=replace)
    rig = Rig(model, plan, claims, ground, clock=ticking, sinks=sinks, actions=actions, tensors=given)
    rig._take(saved, kept)
    rig.loaded = report
    return rig


def _read(state: Mapping[str, Tensor], ground: Ground, model: nn.Module) -> Saved:
    saved = read(state, Room(len(ground.names.modules) + len(ground.names.parameters), model))
    if saved is None:
        raise StateError("the checkpoint holds no hooks", remedy="begin anew: th.attach(model, plan, ...)")
    return saved


def _resolved(
    saved: Saved, ground: Ground, renaming: Renaming, report: Report, actions: Registry, tensors: Mapping[str, Tensor]
) -> tuple[Claim, ...]:
    """What can be attached of the saved plan; of the rest, the report says why not."""
    claims: list[Claim] = []
    for number, hook in enumerate(saved.plan):
        if len(report.differences) >= MAX_DIFFERENCES:
            report.add("hook", f"{len(saved.plan) - number} more hooks were not looked at")
            break
        try:
            claims += resolve((renaming.hook(hook),), ground, actions=actions, tensors=tensors)
        except TenterhookError as error:
            told = f"{error.fact}; {error.remedy}" if error.remedy else error.fact
            report.add(_kind(error), told, hook=hook.id, target=error.target, remedy=_remedy(error))
    return tuple(claims)


def _compared(
    saved: Saved, claims: Sequence[Claim], renaming: Renaming, report: Report, model: nn.Module, *, strict: bool
) -> dict[str, Kept]:
    here = {c.hook.id: (c.hook, c.definition, c.targets) for c in claims}
    kept = compare(saved, here, renaming, report, model)
    if strict:
        report.refuse()
    return kept


def _ordered(claim: Claim, kept: Kept | None) -> Claim:
    """With its targets in the order they had: they fire, and draw random numbers, one after another."""
    place = {name: i for i, name in enumerate(kept.moves.values())} if kept is not None else {}
    return dataclasses.replace(claim, targets=tuple(sorted(claim.targets, key=lambda t: place.get(t.name, len(place)))))


def _remedy(error: TenterhookError) -> str | None:
    """Return a remedy for an unknown action, without which the hook would be left out with its state."""
    return "define the actions first" if isinstance(error, ActionError) else None


def _kind(error: TenterhookError) -> Kind:
    if isinstance(error, ActionError):
        return "action"
    return "hook" if isinstance(error, RefusedError) else "target"
