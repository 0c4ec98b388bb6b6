"""Restore a saved plan and its running state on a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook.actions import DEFAULT, Registry
from tenterhook.errors import ActionError, RefusedError, StateError, TenterhookError
from tenterhook.plan import Plan
from tenterhook.ranks import RankGroup
from tenterhook.record import Sinks
from tenterhook.resolve.agreement import lay_out_on_all_ranks
from tenterhook.resolve.grouping import Group, find_group
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.resolution import Resolution, ResolvedHook, resolve
from tenterhook.resolve.targets import Optimizers, device_of, named_optimizers
from tenterhook.rig.api.attach import check_module, clock_name, free_ids
from tenterhook.rig.installer import gc_paused
from tenterhook.rig.rig import Rig
from tenterhook.rig.saved.format import SavedState, SizeLimits, read
from tenterhook.rig.saved.load_report import Kind, LoadReport
from tenterhook.rig.saved.loader import HookSnapshot, compare, compare_clocks, compare_tensors, read_on_all_ranks
from tenterhook.rig.saved.renaming import Renaming

#: after this many differences, the rest of the plan is not compared
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
    group: Group | None = None,
    patience: float | None = None,
) -> Rig:
    """Attach a plan saved by `rig.state_dict()`, and restore its running state.

    The whole state is checked before any hook is installed. This function imports no modules, so define the actions
    that the plan names before you call it. In a distributed run, call this function on every rank.

    Args:
        model: The model.
        state: A state from `rig.state_dict()`. Other keys in the mapping are ignored.
        optimizer: The optimizer that trains the model, or a list or dict of several optimizers, as in `attach`.
        clock: The optimizer whose steps are counted, or its name. The default is the saved clock.
        sinks: Sinks for the recorded values, as in `attach`.
        actions: The registry in which named actions are looked up.
        tensors: Tensor parameters of actions, by name. These tensors replace the saved tensors.
        rename: Rules that map saved names to names on this model, such as `{"encoder": "backbone"}`.
        strict: If True, raise an error for state that does not match the model. If False, restore only the matching
            state and issue a warning.
        replace: If True, replace hooks that are already on the model and have the same ids.
        group: The ranks that train the model, as in `attach`.
        patience: Number of seconds to wait for the other ranks, as in `attach`.

    Returns:
        The rig. `rig.loaded` lists all differences between the saved state and the model.

    Raises:
        MismatchError: The state does not fit the model, and `strict` is True. Nothing is installed.
        StateError: The state is damaged, the mapping contains no hook state, or the ranks have states of different
            steps.
        RanksError: A rank is missing, or the ranks have different plans.
        ResolveError: `model` is not a module, or `optimizer` or `clock` is invalid.
        PlanError: A rule in `rename` is malformed.
        AttachedError: The model already has a hook with the same id, and `replace` is False.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        >>> rig = th.watch(model)
        >>> model(torch.ones(1, 2)).sum().backward()
        >>> restored = th.restore(other, rig.state_dict())
        >>> restored.step_count
        1
    """
    check_module(model)
    members = find_group("restore", model, group, patience=patience)
    with gc_paused():
        optimizers = named_optimizers(optimizer)
        view = ModelView(model, optimizers, ranks=members.size)
    saved = read_on_all_ranks(members, partial(_read, state, view, model, members.position))
    renaming, report = Renaming(rename), LoadReport()
    counted = saved.header.clock.optimizer
    ticking = clock_name(optimizers, counted if clock is None and counted in optimizers else clock)
    compare_clocks(saved, list(optimizers), counted if clock is not None else ticking, report)
    device = device_of(model)
    given = {name: tensor.to(device, copy=True) for name, tensor in saved.tensors.items()} | dict(tensors or {})
    compare_tensors(saved, tensors or {}, report.notes.append)
    with gc_paused():
        found = _resolved(saved, view, renaming, report, actions, given)
        resolution = lay_out_on_all_ranks(members, "restore", found)
        compared = partial(_compared, saved, resolution, renaming, report, model, members, strict=strict)
        kept = ranks.all_or_none(members, compared)
    if report:
        ranks.warn_once(f"tenterhook restores only the state that fits: {report}", first=members.first)
    resolution = resolution.map(lambda one: _ordered(one, kept.get(one.hook.id)))
    plan = Plan(one.hook for one in resolution)
    free_ids(model, plan, replace=replace)
    rig = Rig(model, plan, resolution, group=members, clock=ticking, sinks=sinks, actions=actions, tensors=given)
    rig._take(saved, kept)
    rig.loaded = report
    return rig


def _read(state: Mapping[str, Tensor], view: ModelView, model: nn.Module, position: int) -> SavedState:
    limits = SizeLimits(len(view.targets.modules) + len(view.targets.parameters), model)
    saved = read(state, limits, position)
    if saved is None:
        raise StateError("the checkpoint holds no hooks", remedy="attach a plan: th.attach(model, plan, ...)")
    return saved


def _resolved(
    saved: SavedState,
    view: ModelView,
    renaming: Renaming,
    report: LoadReport,
    actions: Registry,
    tensors: Mapping[str, Tensor],
) -> Resolution:
    """Resolve each hook of the saved plan that can be attached, and report why the other hooks cannot be attached."""
    found: list[ResolvedHook] = []
    for number, hook in enumerate(saved.plan):
        if len(report.differences) >= MAX_DIFFERENCES:
            report.add("hook", f"{len(saved.plan) - number} more hooks were not compared")
            break
        try:
            found += resolve((renaming.hook(hook),), view, actions=actions, tensors=tensors)
        except TenterhookError as error:
            told = f"{error.fact}; {error.remedy}" if error.remedy else error.fact
            report.add(_kind(error), told, hook=hook.id, target=error.target, remedy=_remedy(error))
    return Resolution(tuple(found), view)


def _compared(
    saved: SavedState,
    resolution: Resolution,
    renaming: Renaming,
    report: LoadReport,
    model: nn.Module,
    group: RankGroup,
    *,
    strict: bool,
) -> dict[str, HookSnapshot]:
    here = {one.hook.id: (one.hook, one.definition, one.targets) for one in resolution}
    kept = compare(saved, here, renaming, report, model, group)
    if strict:
        report.refuse()
    return kept


def _ordered(one: ResolvedHook, kept: HookSnapshot | None) -> ResolvedHook:
    """Put the targets in the saved order, because random numbers are drawn for the targets in this order."""
    place = {name: i for i, name in enumerate(kept.moves.values())} if kept is not None else {}
    return dataclasses.replace(one, targets=tuple(sorted(one.targets, key=lambda t: place.get(t.name, len(place)))))


def _remedy(error: TenterhookError) -> str | None:
    """Return a remedy if the error concerns an action, and None otherwise."""
    return "define the actions first" if isinstance(error, ActionError) else None


def _kind(error: TenterhookError) -> Kind:
    if isinstance(error, ActionError):
        return "action"
    return "hook" if isinstance(error, RefusedError) else "target"
