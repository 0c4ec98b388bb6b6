"""Check that the hooks that are due are registered on the modules and parameters that the model has now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from tenterhook import torch_internals as private
from tenterhook.audit.imbalance import ATTACH_AGAIN, Imbalance
from tenterhook.audit.ledger_data import HookData, LedgerData, SiteData, is_gone, sites_by_name
from tenterhook.audit.names import Named, named_modules, named_parameters

#: where PyTorch keeps the hooks of each point, and the stage of ours among them
_SLOTS = {
    "input": ("_forward_pre_hooks", 0),
    "output": ("_forward_hooks", 0),
    "grad_output": ("_forward_hooks", 1),
    "grad_input": ("_forward_pre_hooks", 1),
    "grad": ("_backward_hooks", 0),
    "grad_accumulated": ("_post_accumulate_grad_hooks", 0),
}
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def is_certain(one: Imbalance, model: nn.Module, ledger: LedgerData) -> bool:
    """Return True if a difference cannot be a change of the model that the rig has not had time to follow."""
    sites = [
        site for hook in ledger.hooks if hook.hook.id == one.hook for site in hook.sites if site.name == one.target
    ]
    return any(
        site.installed and named.names[0] == site.name and site.owner is module
        for site in sites
        for module, named in named_modules(model).items()
    )


def audit_registrations(model: nn.Module, ledger: LedgerData) -> Iterator[Imbalance]:
    """Yield the differences between the hooks that are due and the hooks that PyTorch has."""
    modules = named_modules(model)
    parameters = named_parameters(model)
    for hook in ledger.hooks:
        kinds = hook.hook.point.on
        if kinds == ("tap",):
            yield from _audit_taps(hook, ledger)
            continue
        here: dict[Any, Named] = {}
        here.update(modules if "module" in kinds else {})
        here.update(parameters if "parameter" in kinds else {})
        if all(map(is_gone, hook.sites)) and "optimizer" not in kinds and hook.hook.expect != 0:
            patterns = " ".join(hook.hook.selector.patterns)
            remedy = "change `on` of the hook, or attach again"
            yield Imbalance(
                "TH704", f"nothing matches {patterns!r}", remedy, hook.hook.id, hook.hook.at, severity="warning"
            )
        sites = sites_by_name(hook)
        selected: dict[str, list[Any]] = {}  # a wrapper and the module in it have the same name
        for owner, named in here.items():
            if named.selected_by(hook.hook):
                selected.setdefault(next((name for name in named.names if name in sites), named.names[0]), []).append(
                    owner
                )
        for name, owners in selected.items():
            cause = _why_silent(hook, owners, sites.get(name), ledger.rig)
            if cause is not None:
                yield Imbalance("TH703", cause, ATTACH_AGAIN, hook=hook.hook.id, point=hook.hook.at, target=name)


def _why_silent(hook: HookData, owners: list[nn.Module | Tensor], site: SiteData | None, rig: int) -> str | None:
    """Return why a hook would not act on a module or a parameter, or None if it would."""
    owner = owners[0]
    if site is None:
        return "the hook has no site for it"
    if site.muted_itself:
        return None
    frozen = isinstance(owner, Tensor) and site.dormant == "frozen"
    if isinstance(owner, Tensor) and frozen and owner.requires_grad:
        return "the ledger lists it as frozen, but it requires grad"
    if is_gone(site):
        return "the ledger lists it as removed, but the model has it"
    slot = _SLOTS.get(hook.hook.at)
    if (
        slot is None
        or not hook.active
        or any(map(_is_out_of_reach, owners))
        or (site.dormant is not None and not frozen)
    ):
        return None
    count = sum(_count_ours(one, *slot, rig=rig) for one in owners)
    if count == 1:
        return None
    return f"the hook is registered there {count} times" if count else "the hook is not registered there any more"


def _is_out_of_reach(owner: nn.Module | Tensor) -> bool:
    """Return True for a container that is never called, and for a tensor that autograd does not use directly."""
    if isinstance(owner, Tensor):
        trains = owner.is_leaf and (owner.is_floating_point() or owner.is_complex())
        return not trains or type(owner) is not nn.Parameter
    return type(owner) in _CONTAINERS


def _count_ours(owner: nn.Module | Tensor, slot: str, stage: int, *, rig: int) -> int:
    hooks: Mapping[int, Any] | None
    hooks = private.tensor_hooks(owner, slot) if isinstance(owner, Tensor) else private.hooks_in(owner, slot)
    functions: Iterable[Any] = (hooks or {}).values()
    return sum(getattr(fn, "place", None) == (stage, rig) and not getattr(fn, "suspended", False) for fn in functions)


def _audit_taps(hook: HookData, ledger: LedgerData) -> Iterator[Imbalance]:
    """Yield the tap names of a hook that never appeared."""
    if not ledger.step or not hook.active:
        return
    ran = ledger.taps
    missing = [name for name in hook.hook.selector.exact if name not in ran and f":{name}" not in ran]
    if not missing and (hook.sites or hook.hook.selector.exact):
        return
    wanted = missing[0] if missing else " ".join(hook.hook.selector.patterns)
    seen = f"these taps ran: {', '.join(map(repr, ran[:6]))}" if ran else "no tap ran"
    name = wanted.rpartition(":")[2]
    remedy = f"name a tap that runs, or call th.tap(tensor, {name!r}) in the forward pass"
    if f":{name}" in ran:
        remedy = f"write on={f':{name}'!r}, or bind the tap to its module: th.tap(tensor, {name!r}, within=self)"
    yield Imbalance(
        "TH705",
        seen,
        remedy,
        hook=hook.hook.id,
        point=hook.hook.at,
        target=wanted,
        severity="warning" if missing or ran else "note",
    )
