"""`check`: what can be known of a plan before the first step, and what the ledger proves after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

from torch import nn

from tenterhook.actions import DEFAULT, Registry
from tenterhook.doctor.findings import Finding, Findings, finding
from tenterhook.errors import TenterhookError
from tenterhook.plan import Hook, Plan
from tenterhook.rig import Rig
from tenterhook.rig.fire import out_of_phase
from tenterhook.rig.ledger import MUTED, Account, Site
from tenterhook.rig.names import Optimizers, named_optimizers
from tenterhook.rig.resolve import Ground, resolve


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
    from tenterhook.doctor.raised import of_ours

    plan = Plan([plan]) if isinstance(plan, Hook) else plan or Plan([])
    found: list[Finding] = []
    for hook in plan:
        try:
            resolve((hook,), Ground(what, named_optimizers(optimizer)), actions=actions, tensors={})
        except TenterhookError as error:
            found.append(of_ours(error))
    return Findings(found)


def check_rig(rig: Rig) -> Iterator[Finding]:
    for id, account in rig.ledger.items():
        yield from _check_hook(rig, id, account)


def _check_hook(rig: Rig, id: str, account: Account) -> Iterator[Finding]:
    live = rig._rigging.lives[id]
    hook, sites = live.hook, list(account.values())
    asleep = account.dormant
    muted = {t: why for t, why in asleep.items() if why.startswith(MUTED)}
    if muted or (account.failed and live.claim.on_error == "mute"):
        target, why = next(iter(muted.items()), (None, f"{account.failed} firings failed"))
        yield finding("TH510", f"{len(muted) or account.failed} of {len(sites)} targets: {why}",
                      f'rig.unmute("{id}")  # when the action is mended', hook=id, target=target,
                      point=hook.at)  # fmt: skip
    elif asleep and len(asleep) == len(sites):
        target, why = next(iter(asleep.items()))
        code = "TH104" if "optimizer" in why else "TH103"
        yield finding(code, f"all {len(sites)} targets sleep: {why}",
                      "p.requires_grad_(True)  # it wakes by itself" if code == "TH103" else
                      "th.attach(model, plan, optimizer=optimizer)  # the one that holds them", hook=id, target=target,
                      point=hook.at)  # fmt: skip
    if not rig.step_count:
        return
    silent = [site for site in sites if not site.fired and not site.dormant and site.due]
    if silent and not live.muted:
        yield _silent(rig, id, hook, silent, len(sites))
    elif not account.due and not live.muted and sites:
        yield finding("TH215", f"{rig.step_count} steps, due in none: {hook.when}",
                      "th.When(every=1)", hook=id, point=hook.at)  # fmt: skip
    if live.definition.modifies and account.fired and not account.changed:
        yield finding("TH302", f"{account.fired} firings, and every one returned what it was given",
                      "# nothing to do if the limit is just not reached", hook=id, point=hook.at)  # fmt: skip


def _silent(rig: Rig, id: str, hook: Hook, silent: list[Site], count: int) -> Finding:
    first = silent[0]
    skipped = next(iter(first.skipped or {}), None)
    evidence = f"due {first.due} times, fired 0: {len(silent)} of {count} targets"
    live = rig._rigging.lives[id]
    if skipped is not None and skipped == out_of_phase(live):
        return finding("TH215", f"{evidence}; {skipped}", 'th.When(phase="any")', hook=id, target=first.name,
                       point=hook.at)  # fmt: skip
    model = rig._rigging.model()
    untouched = model is not None and all(p.grad is None for p in model.parameters())
    if untouched and not rig._clock.now.index and first.target.kind != "optimizer":
        return finding(
            "TH206", f"{evidence}; this model ran no forward in {rig.step_count} steps",
            "rig = th.attach(model, plan, optimizer=optimizer)  # the model that is trained", hook=id, target=first.name,
            point=hook.at,
        )  # fmt: skip
    if skipped is not None:
        return finding(
            "TH216", f"{evidence}; {skipped}", "# see the evidence", hook=id, target=first.name, point=hook.at
        )
    if first.target.kind == "module":
        owner = first.target.owner()
        used = isinstance(owner, nn.Module) and any(p.grad is not None for p in owner.parameters())
        whole = "error" if len(silent) == count else "note"
        made = finding(
            "TH207" if used else "TH213",
            evidence + ("; its parameters have gradients, so somebody uses them without calling it" if used else
                        "; the model's forward does not call it"),
            f'th.hook(model, fn, on="{first.name}.*", at="grad")  # what is used' if used else
            f'th.Hook("{id}", on="**", at="{hook.at}", do=...)  # print(rig) shows which fire',
            hook=id, target=first.name, point=hook.at, foreign=whole == "note",
        )  # fmt: skip
        return made
    if first.target.kind == "parameter":
        return finding(
            "TH202", f"{evidence}; no gradient came to it", "loss = criterion(model(x), y)  # of the model that is attached",
            hook=id, target=first.name, point=hook.at, foreign=len(silent) < count,
        )  # fmt: skip
    return finding("TH213", evidence, 'th.tap(t, "name", within=self)  # in the forward', hook=id, target=first.name,
                   point=hook.at)  # fmt: skip
