"""Check that hooks on gradients fired wherever a gradient arrived between two looks."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from tenterhook import torch_internals as private
from tenterhook.audit.imbalance import ATTACH_AGAIN, Imbalance
from tenterhook.audit.ledger_data import HookData, LedgerData, SiteData, settled, sites_by_name
from tenterhook.audit.names import named_parameters
from tenterhook.plan import TRAINING


class ArrivalAudit:
    """An object that compares the gradients that arrived with the firings of hooks at `grad` and `grad_accumulated`."""

    def __init__(self, model: nn.Module, ledger: LedgerData) -> None:
        self._model = weakref.ref(model)
        self._ledger = ledger
        #: the hooks whose sites were counted when the gradients were marked, and the counts
        self._seen: dict[HookData, dict[SiteData, int]] = {}
        #: the gradients that were there, by id
        self._marks: dict[int, private.TensorMark] = {}

    def mark(self) -> None:
        """Mark the gradients that are there now."""
        model = self._model()
        if model is None:
            return
        self._seen = {hook: {site: _settled(hook, site) for site in hook.sites} for hook in self._hooks()}
        grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        self._marks = {id(grad): private.TensorMark(grad) for grad in grads}

    def missed(self) -> Iterator[Imbalance]:
        """Yield the hooks that did not fire, although a gradient arrived since `mark`."""
        model, seen = self._model(), self._seen
        self._seen = {}
        hooks = [hook for hook in self._hooks() if hook in seen]  # another hook may have become active since
        if model is None or not hooks:
            return
        everything = named_parameters(model).items()
        arrived = [(parameter, named) for parameter, named in everything if self.has_arrived(parameter.grad)]
        for hook in hooks:
            sites = sites_by_name(hook)
            for parameter, named in arrived:
                site = next((sites[name] for name in named.names if name in sites), None)
                cause = _why_not(hook, site, seen[hook])
                if cause is None or _acted_under_old_name(hook, parameter, seen[hook]):
                    continue
                used = named.selected_by(hook.hook) and is_nonzero(parameter.grad)
                if used and not private.is_filled_by_ddp(parameter):
                    yield Imbalance(
                        "TH702",
                        cause,
                        f"use grad_final if the program assigns gradients itself; otherwise, {ATTACH_AGAIN}",
                        hook.hook.id,
                        hook.hook.at,
                        target=named.names[0],
                    )

    def has_arrived(self, grad: Tensor | None) -> bool:
        """Return True if a gradient is new or was written to since the gradients were marked."""
        if grad is None:
            return False
        mark = self._marks.get(id(grad))
        return mark is None or not mark.is_unchanged(grad)

    def _hooks(self) -> list[HookData]:
        return [one for one in self._ledger.hooks if one.active and one.hook.at in ("grad", "grad_accumulated")]


def _settled(hook: HookData, site: SiteData) -> int:
    return settled(site, skips=hook.hook.at not in TRAINING)


def _why_not(hook: HookData, site: SiteData | None, before: dict[SiteData, int]) -> str | None:
    """Return why a hook did not fire at a site since the sites were counted, or None if it did."""
    if site is None:
        return "the hook has no site for it"
    if site.muted_itself or _settled(hook, site) != before.get(site, 0):
        return None
    return site.dormant or "the hook did not run"


def _acted_under_old_name(hook: HookData, parameter: Tensor, before: dict[SiteData, int]) -> bool:
    """Return True if the hook fired for a parameter whose name has changed since. The rig reports the change."""
    return any(
        private.own_parameters(site.owner).get(site.name.rpartition(".")[2]) is parameter
        for site in hook.sites
        if isinstance(site.owner, nn.Module) and _settled(hook, site) != before.get(site, 0)
    )


def is_nonzero(grad: Tensor | None) -> bool:
    """Return True if a gradient is not zero. `zero_grad(set_to_none=False)` writes to gradients too."""
    local: Any = grad
    if hasattr(local, "to_local"):
        local = local.to_local()
    return local is not None and bool(local.detach().abs().sum() != 0)
