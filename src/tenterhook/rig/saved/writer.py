"""Convert a rig's state to plain tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import msgspec
import torch
from torch import Tensor

from tenterhook import ranks
from tenterhook.actions import BUILTIN, Definition
from tenterhook.errors import StateError, brief
from tenterhook.plan import Action, Hook, Plan, callable_place
from tenterhook.ranks import RankGroup
from tenterhook.resolve.dormancy import GONE
from tenterhook.resolve.targets import is_sharded, kinds_of
from tenterhook.rig.runtime.attached_hook import MUTED, AttachedHook, Site
from tenterhook.rig.runtime.environment import Environment
from tenterhook.rig.runtime.hook_state import HookState
from tenterhook.rig.saved.format import NAMED, SizeLimits, as_tensor, is_name, is_plain, key_of, write
from tenterhook.rig.saved.schema import MAX_REASONS, NAMES, TENSOR, SavedClock, SavedHook

#: maximum number of saved reasons per hook, and of characters per reason
MOST_REASONS, MOST_TOLD = 32, 200
#: rows of a hook's ledger, which has one column for each target; one more row follows for each reason in `skipped`
ROWS = ("due", "fired", "changed", "failed", "rebound", "first", "last", "kind", "muted")


def pack(
    plan: Plan,
    hooks: Mapping[str, AttachedHook],
    tensors: Mapping[str, Tensor],
    clock: SavedClock,
    optimizers: list[str],
    limits: SizeLimits,
    group: RankGroup,
) -> dict[str, Tensor]:
    """Return the state of all hooks as plain tensors, with a header that describes them."""
    _check_named(plan)
    entries: dict[str, Tensor] = {}
    saved = {id: _pack_hook(hook, entries) for id, hook in hooks.items()}
    entries = {key: tensor for key, tensor in entries.items() if tensor.numel()}
    # The program owns the tensors that it trains, and saves them in its own checkpoint.
    entries |= {key_of(TENSOR, name): _plain(name, t) for name, t in tensors.items() if not t.requires_grad}
    header = {
        **surroundings(),
        "ranks": group.size,
        "sharded": any(is_sharded(t.parameter()) for hook in hooks.values() for t in hook.targets if t.key),
        "optimizers": optimizers,
        "clock": clock,
        "plan": msgspec.Raw(plan.to_json().encode()),
        "hooks": saved,
    }
    return write(header, entries, limits, group.position)


def clock_as_saved(environment: Environment, *, optimizer: str | None, manual: bool) -> SavedClock:
    """Return the saved form of the step clock."""
    clock, passes = environment.clock, environment.clock.passes
    return SavedClock(
        clock.step,
        clock.tripped,
        environment.gradients.accumulated,
        (passes.counts[0], passes.counts[1]),
        last=(passes.now.step, passes.now.index, passes.now.training),
        optimizer=optimizer,
        manual=manual,
    )


@torch.no_grad()
def gather_state(group: RankGroup, hooks: Iterable[AttachedHook]) -> None:
    """Collect the declared state of targets that exist only on some ranks.

    The state of each target comes from the first rank that has the target. Every rank must call this function.
    """
    spread = [hook for hook in hooks if hook.resolved.owners and hook.definition.state]
    mine = group.rank
    given = []
    for hook in spread:
        held = torch.tensor([hook.resolved.first_rank(site.name) == mine for site in hook.sites], device="cpu")
        packed = hook.state.pack(torch.device("cpu"))
        given.append({name: torch.where(held.to(t.device), t, 0.0) for name, t in packed.items()})
    how = [dict.fromkeys(one, "sum") for one in given]
    for hook, whole in zip(spread, ranks.merge(group, given, how), strict=True):
        hook.state.packed.update(whole)


def tensors_of(hooks: Iterable[AttachedHook]) -> list[str]:
    """Return the names of the tensor parameters that hooks use."""
    return sorted(
        {
            hook.definition.convert(hook.hook.do.params)[name]
            for hook in hooks
            if isinstance(hook.hook.do, Action)
            for name in hook.definition.tensor_params
        }
    )


def _plain(name: str, tensor: Tensor) -> Tensor:
    if not name or not is_plain(tensor) or tensor.dtype not in NAMES:
        raise StateError(
            f"the tensor {name!r} cannot be saved: it has {_form(tensor)}",
            remedy="pass a plain tensor with a name to the action",
        )
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _form(tensor: Tensor) -> str:
    return f"type {type(tensor).__name__}, dtype {tensor.dtype}, layout {tensor.layout} and device {tensor.device}"


def surroundings() -> dict[str, str | int]:
    """Return the hardware and software properties that can affect the least significant bits of results."""
    return {
        "torch": torch.__version__.partition("+")[0],
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def fingerprint_of(definition: Definition[...]) -> str | None:
    """Return the digest of an action's code, or None for a built-in action, which is identified by its version."""
    return None if BUILTIN.find(definition.name) is definition else definition.fingerprint


def _check_named(plan: Plan) -> None:
    unnamed = [hook for hook in plan if not isinstance(hook.do, Action)]
    if not unnamed:
        return
    places = "".join(
        f"\n  hook {h.id!r} at {h.at}: the function at {callable_place(h.do)}" for h in unnamed if callable(h.do)
    )
    raise StateError(
        f"{len(unnamed)} of the plan's functions {'has' if len(unnamed) == 1 else 'have'} no registered name, so the "
        f"plan cannot be saved{places}",
        hook=unnamed[0].id if len(unnamed) == 1 else None,
        remedy=f"register {'it' if len(unnamed) == 1 else 'each'}: put @th.action({_name(unnamed[0])!r}, "
        "modifies=True) above its def; leave out modifies=True if it returns nothing",
    )


def _name(hook: Hook) -> str:
    name = getattr(hook.do, "__name__", "")
    return name if name.isidentifier() else "mine"


def _pack_hook(attached: AttachedHook, entries: dict[str, Tensor]) -> SavedHook:
    id, state = attached.hook.id, attached.state
    sites = [site for site in attached.sites if site.dormant != GONE]
    slots = None if len(sites) == len(attached.sites) else torch.tensor([site.slot for site in sites], device="cpu")
    names = [site.name for site in sites]
    for name in names:
        if not is_name(name):
            raise StateError(f"the name {brief(repr(name), 80)} cannot be saved", hook=id, remedy=NAMED)
    kinds = kinds_of([site.target for site in sites])
    numbers = {kind: i for i, kind in enumerate(dict.fromkeys(k for k in kinds if k is not None))}
    reasons: dict[str, int] = {}
    skipped = list(dict.fromkeys(why for site in sites if site.skipped for why in site.skipped))[:MAX_REASONS]
    entries[key_of("targets", id)] = as_tensor("\0".join(names).encode())
    entries[key_of("ledger", id)] = _table(
        [
            [site.due for site in sites],
            [site.fired for site in sites],
            [site.changed for site in sites],
            [site.failed for site in sites],
            [site.rebound for site in sites],
            [site.first for site in sites],
            [site.last for site in sites],
            [-1 if kind is None else numbers[kind] for kind in kinds],
            [-1 if site.dormant is None else _reason(site, reasons) for site in sites],
            *([site.skipped.get(why, 0) if site.skipped else 0 for site in sites] for why in skipped),
        ]
    )
    for kind, packed in (("state", state.packed), ("pending", state.pending)):
        entries.update({key_of(kind, id, name): _kept(tensor, slots) for name, tensor in packed.items()})
    partials = attached.partials
    if partials is not None and 1 in partials.fired:
        entries.update({key_of("partial", id, name): _kept(store, slots) for name, store in partials.stores.items()})
        entries[key_of("fired", id)] = _kept(as_tensor(bytes(partials.fired)), slots)
    _pack_free(id, state, {site.slot: i for i, site in enumerate(sites)}, entries)
    for (device, seed), generator in state.generators.items():
        entries[key_of("generator", id, device, str(seed))] = generator.get_state()
    return SavedHook(
        attached.definition.name,
        attached.definition.version,
        fingerprint_of(attached.definition),
        due=attached.due_steps,
        counted=attached.counted,
        muted=attached.status.is_muted,
        kinds=list(numbers),
        reasons=list(reasons),
        skipped=[_told(why) for why in skipped],
    )


def _table(rows: list[list[int]]) -> Tensor:
    table = torch.empty(len(rows), len(rows[0]), dtype=torch.int64, device="cpu")
    for numbers, row in zip(rows, table, strict=True):
        if numbers and numbers.count(numbers[0]) == len(numbers):  # true for most rows; fill_ is faster than copy_
            row.fill_(numbers[0])
        else:
            row.copy_(torch.tensor(numbers, device="cpu"))
    return table


def _kept(tensor: Tensor, slots: Tensor | None) -> Tensor:
    return tensor.detach().clone() if slots is None else tensor.detach()[slots.to(tensor.device)]


def _reason(site: Site, reasons: dict[str, int]) -> int:
    """Return the index of the reason why a site was muted after an error, or -1 if it was not muted.

    Other reasons for dormancy are not saved, because they can be derived from the model again.
    """
    if site.dormant is None or not site.muted_itself:
        return -1
    why = _told(site.dormant)
    if why not in reasons and len(reasons) >= MOST_REASONS:
        why = MUTED
    return reasons.setdefault(why, len(reasons))


def _told(why: str) -> str:
    """Shorten a reason to fit in the header, because the text of an exception may be long."""
    return brief(why.replace("\n", " "), MOST_TOLD)[:MOST_TOLD]


def _pack_free(id: str, state: HookState, places: Mapping[int, int], entries: dict[str, Tensor]) -> None:
    """Join stored tensors that have the same name, dtype and number of dimensions.

    The `index` entries contain the slots and shapes of the tensors.
    """
    for kind, index, table in (("free", "index", state.free), ("pending_free", "pending_index", state.pending_free)):
        groups: dict[str, list[tuple[int, Tensor]]] = {}
        for (slot, name), tensor in table.items():
            if slot in places:
                dtype = NAMES.get(tensor.dtype)
                if dtype is None or not is_plain(tensor):
                    raise StateError(
                        f"its state {name!r} cannot be saved: it has {_form(tensor)}",
                        hook=id,
                        remedy="store a plain tensor in the action's state",
                    )
                groups.setdefault(f"{dtype}/{tensor.dim()}/{name}", []).append((places[slot], tensor.detach()))
        for group, found in groups.items():
            found.sort(key=lambda item: item[0])
            device = found[0][1].device
            entries[key_of(kind, id, group)] = _joined(t.to(device) for _, t in found)
            entries[key_of(index, id, group)] = torch.tensor([[s, *t.shape] for s, t in found], device="cpu")


def _joined(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])
