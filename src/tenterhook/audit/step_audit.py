"""Check before each optimizer step that the hooks on its gradients ran, and after it that the hooks on updates ran."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.audit.imbalance import ATTACH_AGAIN, Imbalance
from tenterhook.audit.ledger_data import HookData, LedgerData, SiteData, sites_by_name
from tenterhook.audit.names import named_parameters


class Entry(NamedTuple):
    """A parameter that a hook selects, and the hook's site for it."""

    parameter: Tensor
    name: str
    site: SiteData | None


class Matched(NamedTuple):
    """The parameters of an optimizer that a hook selects."""

    hook: HookData
    entries: list[Entry]
    #: the number of the hook's sites
    sites: int
    #: how often each site was settled before the step
    before: list[int]


class StepAudit:
    """An object that audits the hooks at `grad_final` and `update` in each step of any optimizer.

    Args:
        model: The model.
        ledger: The ledger.
        optimizers: Function that returns the optimizers that were given to `attach`.
    """

    def __init__(self, model: nn.Module, ledger: LedgerData, optimizers: Callable[[], Sequence[Optimizer]]) -> None:
        self._model = weakref.ref(model)
        self._ledger = ledger
        self._optimizers = optimizers
        #: for each optimizer, its parameters and what the hooks select among them
        self._known: weakref.WeakKeyDictionary[Optimizer, tuple[list[int], list[Matched]]] = weakref.WeakKeyDictionary()
        #: how often all targets had been looked up when the names were read
        self._resolved = 0
        self._audited: list[Matched] = []

    def forget(self) -> None:
        """Match all names again at the next step."""
        self._known.clear()

    def begin(self, optimizer: Optimizer) -> None:
        """Note which sites are due in a step, and how often they were settled before it."""
        self._audited = []
        hooks = [one for one in self._ledger.hooks if one.active and one.hook.at in ("grad_final", "update")]
        if hooks:
            self._audited = self._matched(optimizer, hooks)
            for matched in self._audited:
                matched.before[:] = [0 if site is None else site.fired + site.failed for _, _, site in matched.entries]

    def unhandled(self, optimizer: Optimizer, *points: str) -> list[Imbalance]:
        """Return the parameters that have a gradient, but whose hooks at these points did not run in this step."""
        if not any(True for _ in self._silent(points)) or _is_ignored(optimizer):
            return []
        # The names may have changed since they were read. Look at the model as it is now before saying anything.
        before = {id(site): count for one in self._audited for (_, _, site), count in zip(one.entries, one.before)}
        self._known.pop(optimizer, None)
        self._audited = self._matched(optimizer, [one.hook for one in self._audited])
        for matched in self._audited:
            matched.before[:] = [before.get(id(site), -1) for _, _, site in matched.entries]
        return [self._imbalance(optimizer, hook, entry) for hook, entry in self._silent(points)]

    def _matched(self, optimizer: Optimizer, hooks: list[HookData]) -> list[Matched]:
        ids = [id(one) for group in optimizer.param_groups for one in group["params"]]
        if self._resolved != self._ledger.structure.resolved:  # a parameter may have another name now
            self._resolved = self._ledger.structure.resolved
            self.forget()
        known, found = self._known.get(optimizer, ([], []))
        if ids == known and [(one.hook, one.sites) for one in found] == [(one, len(one.sites)) for one in hooks]:
            return found
        model = self._model()
        names = {} if model is None else named_parameters(model)
        mine = set(ids)
        named = [(parameter, one) for parameter, one in names.items() if id(parameter) in mine]
        found = []
        for hook in hooks:
            sites = sites_by_name(hook)
            entries = [
                Entry(parameter, one.names[0], next((sites[n] for n in one.names if n in sites), None))
                for parameter, one in named
                if one.selected_by(hook.hook)
            ]
            found.append(Matched(hook, entries, len(hook.sites), [0] * len(entries)))
        self._known[optimizer] = ids, found
        return found

    def _silent(self, points: Sequence[str]) -> Iterator[tuple[HookData, Entry]]:
        for matched in self._audited:
            if matched.hook.hook.at in points and not _failed(matched):
                for entry, before in zip(matched.entries, matched.before, strict=True):
                    site = entry.site
                    if site is not None and site.fired + site.failed != before:
                        continue
                    if entry.parameter.grad is not None and not (site is not None and site.muted_itself):
                        yield matched.hook, entry

    def _imbalance(self, optimizer: Optimizer, hook: HookData, entry: Entry) -> Imbalance:
        remedy = ATTACH_AGAIN
        if not any(optimizer is one for one in self._optimizers()):
            cause = f"the {type(optimizer).__name__} that steps was not given to attach"
            remedy = "give attach every optimizer that trains the model, or select other parameters"
        elif entry.site is None:
            cause = "the hook has no site for the parameter"
        elif entry.site.dormant is not None:
            cause = f"the ledger lists the site as dormant ({entry.site.dormant})"
        elif entry.site.skipped:
            cause = f"the hook did not run; the ledger lists skipped steps ({'; '.join(entry.site.skipped)})"
        else:
            cause = "the hook did not run"
        return Imbalance("TH701", cause, remedy, hook=hook.hook.id, point=hook.hook.at, target=entry.name)


def _failed(matched: Matched) -> bool:
    """Return True if the action failed in this step, which was reported. It may measure several targets together."""
    return any(
        site is not None and site.muted_itself and site.fired + site.failed != before
        for (_, _, site), before in zip(matched.entries, matched.before, strict=True)
    )


def _is_ignored(optimizer: Optimizer) -> bool:
    """Return True if the step changes no parameter: GradScaler skips it, or it only creates the optimizer's state."""
    skipped = private.found_inf(optimizer)
    return (skipped is not None and bool(skipped.item())) or private.creates_optimizer_state()
