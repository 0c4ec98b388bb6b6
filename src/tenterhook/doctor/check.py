"""Implement `check`: find faults in a plan before the first step, and faults in a rig from its ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import overload

from torch import nn

from tenterhook import ranks
from tenterhook.actions import DEFAULT, Registry
from tenterhook.audit.imbalance import TITLES, UNCALLED, Imbalance
from tenterhook.doctor.findings import Finding, Findings
from tenterhook.doctor.reading.bytecode import read
from tenterhook.doctor.rules.compiled import cost_of_a_hook
from tenterhook.doctor.rules.errors import of_ours
from tenterhook.doctor.rules.hazards import muted_itself, values_lost
from tenterhook.doctor.rules.no_effect import returned_nothing, returned_what_it_was_given
from tenterhook.doctor.rules.registry import SilentSites, Subject, found, plural, quoting
from tenterhook.doctor.rules.silent.never_fired import (
    gradient_was_none,
    never_called,
    not_due,
    not_on_the_way_to_the_loss,
    used_without_a_call,
)
from tenterhook.doctor.rules.silent.not_installed import frozen_target, in_no_optimizer
from tenterhook.doctor.rules.silent.replaced import another_model_ran
from tenterhook.errors import ResolveError, TenterhookError
from tenterhook.plan import POINTS, Action, Hook, Plan, When
from tenterhook.resolve.dormancy import GONE
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.resolution import resolve
from tenterhook.resolve.targets import Optimizers, named_optimizers
from tenterhook.rig import Rig
from tenterhook.rig.compiled.graph_cache import cost
from tenterhook.rig.ledger import Account
from tenterhook.rig.points.calling import out_of_phase

#: rules that quote the texts of the auditor
_IMBALANCES = {code: quoting(code) for code in TITLES}


@overload
def check(what: Rig) -> Findings: ...


@overload
def check(
    what: nn.Module, plan: Plan | Hook | Iterable[Hook], *, optimizer: Optimizers = None, actions: Registry = ...
) -> Findings: ...


def check(
    what: Rig | nn.Module,
    plan: Plan | Hook | Iterable[Hook] | None = None,
    *,
    optimizer: Optimizers = None,
    actions: Registry = DEFAULT,
) -> Findings:
    """Report faults in a rig, or in a plan for a given model.

    For a rig, the findings come from its ledger, so run at least one step first. For a model and a plan, `check`
    resolves each hook without attaching it, so the model stays unchanged. A hook that `th.attach` would refuse is
    reported as a finding.

    Args:
        what: A rig, or the model to which the plan would be attached.
        plan: The plan, the hook or the hooks to check against the model. Used only if `what` is a model.
        optimizer: The optimizer or optimizers that would be passed to `th.attach`. Used only if `what` is a model.
        actions: The registry in which action names are looked up.

    Returns:
        The findings, most severe first. Empty if no faults were found.

    Raises:
        ResolveError: `what` is neither a rig nor a model, or the plan is missing.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1))
        >>> findings = th.check(model, th.Hook("clip", on="1.weight", at="grad", do=th.clip_value(1.0)))
        >>> findings.codes
        ['TH101']
        >>> th.check(model, th.Hook("clip", on="0.weight", at="grad", do=th.clip_value(1.0)))
        no findings
    """
    if isinstance(what, Rig):
        return Findings(check_rig(what))
    if not isinstance(what, nn.Module) or plan is None:
        given = "the plan is missing" if isinstance(what, nn.Module) else f"an object of type {type(what).__name__}"
        raise ResolveError(
            f"th.check cannot check this: {given}", remedy="write th.check(model, plan), or th.check(rig) after a step"
        )
    plan = plan if isinstance(plan, Plan) else Plan([plan] if isinstance(plan, Hook) else plan)
    reported: list[Finding] = []
    for hook in plan:
        view = ModelView(what, named_optimizers(optimizer), ranks=ranks.world_size())
        try:
            (resolved,) = resolve((hook,), view, actions=actions, tensors={})
        except TenterhookError as error:
            reported.append(of_ours(error))
        else:
            reported += found(cost_of_a_hook(Subject(hook.id, point=hook.at), cost(resolved, view)))
    return Findings(reported)


def check_rig(rig: Rig) -> Iterator[Finding]:
    """Yield the faults that a rig's ledger shows."""
    seen = [finding for id, account in rig.ledger.items() for finding in _check_hook(rig, id, account)]
    explained = {finding.hook for finding in seen if finding.code == used_without_a_call.code}
    yield from (_imbalance(one) for one in rig.imbalances if one.code != UNCALLED or one.hook not in explained)
    dropped = rig.ledger.graphs.dropped
    if dropped:
        yield from found(cost_of_a_hook(Subject(), dropped=dropped))
    for loss in rig._recorder.losses():
        yield from found(values_lost(Subject(), loss))
    yield from seen


def _check_hook(rig: Rig, id: str, account: Account) -> Iterator[Finding]:
    yield from _check_targets(rig, id, account)
    yield from _check_firings(rig, id, account)


def _check_targets(rig: Rig, id: str, account: Account) -> Iterator[Finding]:
    """Report targets at which the action failed, and a hook whose targets were always dormant.

    A program may freeze targets for a part of each step, as a GAN does with its discriminator.
    """
    sites, asleep = len(account), account.dormant
    on_error = rig._attached_hook(id).resolved.on_error
    muted = {site.name: site.dormant or "" for site in account.values() if site.muted_itself}
    if muted or (account.failed and on_error == "mute"):
        target, why = next(iter(muted.items()), (None, f"{plural(account.failed, 'firing')} failed"))
        about = Subject(id, target, account.hook.at)
        yield from found(muted_itself(about, len(muted) or account.failed, sites, why))
    elif asleep and len(asleep) == sites and not account.fired and set(asleep.values()) != {GONE}:
        target, why = next(iter(asleep.items()))
        rule = in_no_optimizer if "optimizer" in why else frozen_target
        evidence = f"the hook is dormant on {sites} of {plural(sites, 'target')}: {why}"
        yield from found(rule(Subject(id, target, account.hook.at), evidence))


def _check_firings(rig: Rig, id: str, account: Account) -> Iterator[Finding]:
    """Report a hook that did not fire, or that fired but changed nothing."""
    attached, about, sites = rig._attached_hook(id), Subject(id, point=account.hook.at), list(account.values())
    if not rig.step_count or attached.status.is_muted:
        return
    if POINTS[account.hook.at].side == "state":
        return  # a training run may never save or load a checkpoint
    silent = [site for site in sites if not site.fired and not site.dormant and site.due]
    if silent:
        yield from found(_why_silent(rig, SilentSites(silent[0], len(silent), len(sites))))
    elif not account.due and sites:
        yield from found(not_due(about, _schedule(account.hook), rig.step_count))
    definition = attached.definition
    if not definition.modifies or not account.fired or account.changed:
        return
    nothing = returned_nothing(about, read(definition.fn), definition.name, account.fired)
    if nothing is not None:
        yield nothing
    elif isinstance(account.hook.do, Action):
        yield from found(returned_what_it_was_given(about, account.fired))


def _schedule(hook: Hook) -> str:
    """Format the schedule parameters that differ from their defaults."""
    when = {f.name: getattr(hook.when, f.name) for f in fields(hook.when)}
    return ", ".join(f"{name}={value!r}" for name, value in when.items() if value != getattr(When(), name))


def _why_silent(rig: Rig, sites: SilentSites) -> Finding | None:
    """Return the finding that explains why sites that were due did not fire."""
    first = sites.first
    skipped = next(iter(first.skipped or {}), None)
    if skipped is not None and skipped == out_of_phase(first.attached):
        return not_due(sites, skipped)
    model = rig._installer.environment.model.root()
    untouched = model is not None and all(p.grad is None for p in model.parameters())
    if untouched and not rig._clock.passes.now.index and first.target.kind != "optimizer":
        return another_model_ran(sites, "", rig.step_count)
    if skipped is not None:
        return gradient_was_none(sites, skipped)
    if first.target.kind == "module":
        return used_without_a_call(sites) or never_called(sites)
    return not_on_the_way_to_the_loss(sites) if first.target.kind == "parameter" else never_called(sites)


def _imbalance(one: Imbalance) -> Finding:
    """Return the finding for a difference between the ledger and the model."""
    about = Subject(one.hook, one.target, one.point, minor=one.severity == "note")
    return _IMBALANCES[one.code].quote(about, one.evidence, one.remedy)
