"""Check that modules with hooks were called wherever their parameters were used."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator

from torch import Tensor, nn

from tenterhook import torch_internals as private
from tenterhook.audit.arrival_audit import is_nonzero
from tenterhook.audit.imbalance import UNCALLED, Imbalance
from tenterhook.audit.ledger_data import HookData, LedgerData, SiteData, settled
from tenterhook.audit.names import named_modules

#: the points at which a hook fires only if PyTorch calls the module
MODULE_POINTS = ("input", "output", "grad_input", "grad_output")
_REMEDY = (
    "run the model itself, not a traced or exported copy; if another module uses these parameters, select that one"
)


class CallAudit:
    """An object that notices modules whose hooks cannot fire, because the program does not call them.

    A copy that `torch.jit.trace` or `aot_compile` made of the model uses its parameters without calling its modules.
    So does `nn.MultiheadAttention` with its `out_proj`.
    """

    def __init__(self, model: nn.Module, ledger: LedgerData) -> None:
        self._model = weakref.ref(model)
        self._ledger = ledger
        #: the number of the first graph node after attach
        self._start = private.sequence_number()
        #: the hooks that were due when the sites were counted, and the counts
        self._seen: dict[HookData, dict[SiteData, int]] = {}

    def mark(self) -> None:
        """Count how often each site was settled so far."""
        self._seen = {hook: {site: settled(site, skips=True) for site in hook.sites} for hook in self._hooks()}

    def missed(self, has_arrived: Callable[[Tensor | None], bool]) -> Iterator[Imbalance]:
        """Yield the sites on modules that were not called since `mark`, although gradients arrived there."""
        model, seen, self._seen = self._model(), self._seen, {}
        hooks = [hook for hook in self._hooks() if hook in seen]  # another hook may have become active since
        if model is None or not hooks:
            return
        holders = _holders(model)
        for hook in hooks:
            # An observer of many modules works, even if it selects some that PyTorch never calls.
            if not hook.modifies and any(map(_has_acted, hook.sites)):
                continue
            for site in hook.sites:
                if site.dormant is None and settled(site, skips=True) == seen[hook].get(site):
                    mine = private.own_parameters(site.owner).values() if isinstance(site.owner, nn.Module) else ()
                    own = [one for one in mine if one is not None and holders.get(one) == 1 and has_arrived(one.grad)]
                    if any(is_nonzero(one.grad) and not private.is_filled_by_ddp(one) for one in own):
                        cause = "gradients arrived at its parameters, but the module was not called in this step"
                        yield Imbalance(
                            UNCALLED, cause, _REMEDY, hook.hook.id, hook.hook.at, site.name, severity="warning"
                        )

    def idle(self) -> Iterator[Imbalance]:
        """Yield the hooks on modules that were not called before the first step, although autograd was used."""
        if self._ledger.step or private.sequence_number() == self._start:
            return
        for hook in self._hooks():
            if hook.sites and not any(map(_has_acted, hook.sites)):
                yield Imbalance(
                    UNCALLED,
                    "operations were recorded by autograd since the hook was attached, but no target was called",
                    _REMEDY,
                    hook.hook.id,
                    hook.hook.at,
                    severity="note",
                )

    def _hooks(self) -> list[HookData]:
        return [one for one in self._ledger.hooks if one.active and one.hook.at in MODULE_POINTS]


def _has_acted(site: SiteData) -> bool:
    return settled(site, skips=True) > 0 or site.dormant is not None


def _holders(model: nn.Module) -> Counter[Tensor]:
    """Return how many modules hold each parameter."""
    return Counter(
        one for module in named_modules(model) for one in private.own_parameters(module).values() if one is not None
    )
