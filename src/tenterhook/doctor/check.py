"""`check`: what can be known of a plan before the first step, and what the ledger proves after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from typing import overload

from torch import nn

from tenterhook.actions import DEFAULT, Registry
from tenterhook.doctor.findings import Finding, Findings, finding, many
from tenterhook.doctor.observe.source import read
from tenterhook.doctor.rules.errors import of_ours
from tenterhook.errors import TenterhookError
from tenterhook.plan import Action, Hook, Plan, When
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.resolution import resolve
from tenterhook.resolve.targets import Optimizers, named_optimizers
from tenterhook.rig import Rig
from tenterhook.rig.compiled.graph_cache import Cost, cost
from tenterhook.rig.ledger import Account
from tenterhook.rig.points.calling import out_of_phase
from tenterhook.rig.runtime.attached_hook import MUTED, Site


@overload
def check(what: Rig) -> Findings: ...


@overload
def check(what: nn.Module, plan: Plan | Hook, *, optimizer: Optimizers = None, actions: Registry = ...) -> Findings: ...


def check(
    what: Rig | nn.Module, plan: Plan | Hook | None = None, *, optimizer: Optimizers = None, actions: Registry = DEFAULT
) -> Findings:
    """What is wrong with a rig, or would be with a plan on a model. Nothing is changed, nothing raised."""
    if isinstance(what, Rig):
        return Findings(check_rig(what))
    plan = Plan([plan]) if isinstance(plan, Hook) else plan or Plan([])
    found: list[Finding] = []
    for hook in plan:
        view = ModelView(what, named_optimizers(optimizer))
        try:
            (resolved,) = resolve((hook,), view, actions=actions, tensors={})
        except TenterhookError as error:
            found.append(of_ours(error))
        else:
            found += _compiled(hook, cost(resolved, view))
    return Findings(found)


def _compiled(hook: Hook, cost: Cost) -> Iterator[Finding]:
    """What a hook costs in a compiled model."""
    if not cost:
        return
    evidence = f"compiled code calls {cost.doors} of its targets: a door each, and no graph break"
    if not cost.doors:
        evidence = "it comes on modules that compiled code calls"
    evidence += "; what passes is copied each time" if cost.copies else ""
    having, alike = cost.among
    if having < alike:
        evidence += (
            f"; {having} of {alike} compiled modules of one class have it, and are compiled apart from the others"
        )
    remedy = "# nothing to do: nothing is compiled again when it is muted, or due in some steps only"
    if cost.dropped:
        evidence += f"; {many(cost.dropped, 'graph')} without it will be dropped, and compiled again when next called"
        remedy = FIRST
    yield finding("TH112", evidence, remedy, hook=hook.id, point=hook.at)


FIRST = "rig = th.attach(model, plan, optimizer=optimizer)  # before the first call: nothing is compiled twice"


def check_rig(rig: Rig) -> Iterator[Finding]:
    dropped = rig.ledger.graphs.dropped
    if dropped:
        were = "graph that was" if dropped == 1 else "graphs that were"
        yield finding("TH112", f"{dropped} {were} compiled without its hooks had to be compiled again", FIRST)
    for id, account in rig.ledger.items():
        yield from _check_hook(rig, id, account)


def _check_hook(rig: Rig, id: str, account: Account) -> Iterator[Finding]:
    live = rig._attached_hook(id)
    hook, sites, asleep = live.hook, list(account.values()), account.dormant
    said = partial(finding, hook=id, point=hook.at)
    muted = {target: why for target, why in asleep.items() if why.startswith(MUTED)}
    if muted or (account.failed and live.resolved.on_error == "mute"):
        target, why = next(iter(muted.items()), (None, f"{many(account.failed, 'firing')} failed"))
        yield said(
            "TH510", f"{len(muted) or account.failed} of {len(sites)} targets: {why}",
            f'rig.unmute("{id}")  # when the action is mended', target=target,
        )  # fmt: skip
    elif asleep and len(asleep) == len(sites):
        target, why = next(iter(asleep.items()))
        evidence = f"all {many(len(sites), 'target')} sleep: {why}"
        if "optimizer" in why:
            yield said(
                "TH104", evidence, "th.attach(model, plan, optimizer=...)  # the one that holds them", target=target
            )
        else:
            yield said("TH103", evidence, "p.requires_grad_(True)  # it wakes by itself", target=target)
    if not rig.step_count or live.status.is_muted:
        return
    silent = [site for site in sites if not site.fired and not site.dormant and site.due]
    if silent:
        yield _silent(rig, silent, len(sites))
    elif not account.due and sites:
        when = {f.name: getattr(hook.when, f.name) for f in fields(hook.when)}
        asked = ", ".join(f"{name}={value!r}" for name, value in when.items() if value != getattr(When(), name))
        yield said("TH215", f"{many(rig.step_count, 'step')}, due in none: When({asked})", "th.When(every=1)")
    if not live.definition.modifies or not account.fired or account.changed:
        return
    reading = read(live.definition.fn)
    if reading is not None and reading.lost is not None:
        value = reading.lost or f"{reading.arguments[0]} * 2"
        yield said(
            "TH301", f"{many(account.fired, 'firing')}, and every one returned None",
            f"def {live.definition.name}({', '.join(reading.arguments)}):\n    ...\n    return {value}",
        )  # fmt: skip
    elif isinstance(hook.do, Action):
        yield said(
            "TH302", f"{many(account.fired, 'firing')}, and every one returned what it was given",
            "# nothing to do if the limit is just not reached",
        )  # fmt: skip


def _silent(rig: Rig, silent: list[Site], count: int) -> Finding:
    """Why sites that were due did not fire; if others of the hook did, it is no more than a note."""
    first, live = silent[0], silent[0].attached
    said = partial(finding, hook=first.hook, target=first.name, point=first.point)
    evidence = f"due {many(first.due, 'time')}, fired 0: {len(silent)} of {count} targets"
    skipped, some = next(iter(first.skipped or {}), None), len(silent) < count
    if skipped is not None and skipped == out_of_phase(live):
        return said("TH215", f"{evidence}; {skipped}", 'th.When(phase="any")')
    model = rig._installer.environment.model.root()
    untouched = model is not None and all(p.grad is None for p in model.parameters())
    if untouched and not rig._clock.passes.now.index and first.target.kind != "optimizer":
        return said(
            "TH206", f"{evidence}; this model ran no forward in {many(rig.step_count, 'step')}",
            "rig = th.attach(model, plan, optimizer=optimizer)  # the model that is trained",
        )  # fmt: skip
    if skipped is not None:
        return said("TH216", f"{evidence}; {skipped}", "print(rig.ledger[...])  # how often, and why")
    if first.target.kind == "module":
        owner = first.target.owner()
        if isinstance(owner, nn.Module) and any(p.grad is not None for p in owner.parameters()):
            return said(
                "TH207", f"{evidence}; its parameters have gradients, so somebody uses them without calling it",
                f'th.hook(model, fn, on="{first.name}.*", at="grad")  # what is used', lightly=some,
            )  # fmt: skip
        return said("TH213", f"{evidence}; the model's forward does not call it",
                    "print(rig)  # which fire", lightly=some)  # fmt: skip
    if first.target.kind == "parameter":
        return said(
            "TH202", f"{evidence}; no gradient came to it",
            "loss = criterion(model(x), y)  # of the model that the rig is on", lightly=some,
        )  # fmt: skip
    return said("TH213", evidence, 'th.tap(t, "name", within=self)  # in the forward')
