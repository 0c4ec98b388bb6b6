"""From a rig to its saved state."""

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
from tenterhook.resolve.targets import is_sharded, kinds_of
from tenterhook.rig.runtime.attached_hook import GONE, MUTED, LiveHook, Site
from tenterhook.rig.runtime.hook_state import HookState
from tenterhook.rig.saved.format import NAMED, Room, as_tensor, is_name, is_plain, key_of, write
from tenterhook.rig.saved.schema import MAX_REASONS, NAMES, TENSOR, SavedClock, SavedHook

#: reasons of one hook, and characters of one, that are kept
MOST_REASONS, MOST_TOLD = 32, 200


#: rows of a hook's ledger, one column for each target; then one more row for each reason in `skipped`
ROWS = ("due", "fired", "changed", "failed", "rebound", "first", "last", "kind", "muted")


def pack(
    plan: Plan, lives: Mapping[str, LiveHook], tensors: Mapping[str, Tensor], clock: SavedClock,
    optimizers: list[str], room: Room,
) -> dict[str, Tensor]:  # fmt: skip
    _check_named(plan)
    entries: dict[str, Tensor] = {}
    hooks = {id: _pack_hook(live, entries) for id, live in lives.items()}
    entries = {key: tensor for key, tensor in entries.items() if tensor.numel()}
    # One that is trained belongs to the program, which has it in its optimizer and in its own checkpoint.
    entries |= {key_of(TENSOR, name): _plain(name, t) for name, t in tensors.items() if not t.requires_grad}
    header = {
        **surroundings(),
        "ranks": ranks.world_size(),
        "sharded": any(is_sharded(t.parameter()) for live in lives.values() for t in live.targets if t.key),
        "optimizers": optimizers,
        "clock": clock,
        "plan": msgspec.Raw(plan.to_json().encode()),
        "hooks": hooks,
    }
    return write(header, entries, room)


def tensors_of(lives: Iterable[LiveHook]) -> list[str]:
    """The names of the tensor parameters that hooks use."""
    return sorted({live.definition.convert(live.hook.do.params)[p] for live in lives if isinstance(live.hook.do, Action)
                   for p in live.definition.tensor_params})  # fmt: skip


def _plain(name: str, tensor: Tensor) -> Tensor:
    if not name or not is_plain(tensor) or tensor.dtype not in NAMES:
        raise StateError(
            f"the tensor {name!r} cannot be kept: it is {_form(tensor)}", remedy="give the action a plain, named tensor"
        )
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _form(tensor: Tensor) -> str:
    return f"a {type(tensor).__name__} of {tensor.dtype}, {tensor.layout}, on {tensor.device}"


def surroundings() -> dict[str, str | int]:
    """What else decides the bits of a run."""
    return {
        "torch": torch.__version__.partition("+")[0],
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def fingerprint_of(definition: Definition) -> str | None:
    """None for a built-in action: its version says all."""
    return None if BUILTIN.find(definition.name) is definition else definition.fingerprint


def _check_named(plan: Plan) -> None:
    unnamed = [hook for hook in plan if not isinstance(hook.do, Action)]
    if not unnamed:
        return
    places = "".join(f"\n  hook {h.id!r} at {h.at}: its function at {callable_place(h.do)}" for h in unnamed)  # type: ignore[arg-type]
    raise StateError(
        f"{len(unnamed)} of the plan's functions {'has' if len(unnamed) == 1 else 'have'} no name that a checkpoint "
        f"could keep{places}",
        hook=unnamed[0].id if len(unnamed) == 1 else None,
        remedy=f"register {'it' if len(unnamed) == 1 else 'each'}: put @th.action({_name(unnamed[0])!r}) above a def",
    )


def _name(hook: Hook) -> str:
    name = getattr(hook.do, "__name__", "")
    return name if name.isidentifier() else "mine"


def _pack_hook(live: LiveHook, entries: dict[str, Tensor]) -> SavedHook:
    id, state = live.hook.id, live.state
    sites = [site for site in live.sites if site.dormant != GONE]
    slots = None if len(sites) == len(live.sites) else torch.tensor([site.slot for site in sites])
    names = [site.name for site in sites]
    for name in names:
        if not is_name(name):
            raise StateError(f"the name {brief(repr(name), 80)} cannot be kept", hook=id, remedy=NAMED)
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
    partials = live.partials
    if partials is not None and 1 in partials.fired:
        entries.update({key_of("partial", id, name): _kept(store, slots) for name, store in partials.stores.items()})
        entries[key_of("fired", id)] = _kept(as_tensor(bytes(partials.fired)), slots)
    _pack_free(id, state, {site.slot: i for i, site in enumerate(sites)}, entries)
    for (device, seed), generator in state.generators.items():
        entries[key_of("generator", id, device, str(seed))] = generator.get_state()
    return SavedHook(
        live.definition.name, live.definition.version, fingerprint_of(live.definition),
        due=live.due_steps, counted=live.counted, muted=live.muted,
        kinds=list(numbers), reasons=list(reasons), skipped=[_told(why) for why in skipped],
    )  # fmt: skip


def _table(rows: list[list[int]]) -> Tensor:
    table = torch.empty(len(rows), len(rows[0]), dtype=torch.int64, device="cpu")
    for numbers, row in zip(rows, table, strict=True):
        if numbers and numbers.count(numbers[0]) == len(numbers):  # most rows: every site has fired as often
            row.fill_(numbers[0])
        else:
            row.copy_(torch.tensor(numbers, device="cpu"))
    return table


def _kept(tensor: Tensor, slots: Tensor | None) -> Tensor:
    return tensor.detach().clone() if slots is None else tensor.detach()[slots.to(tensor.device)]


def _reason(site: Site, reasons: dict[str, int]) -> int:
    """Of a site that muted itself; other reasons to sleep are seen again on the model."""
    if site.dormant is None or not site.dormant.startswith(MUTED):
        return -1
    why = _told(site.dormant)
    if why not in reasons and len(reasons) >= MOST_REASONS:
        why = MUTED
    return reasons.setdefault(why, len(reasons))


def _told(why: str) -> str:
    """A word as a header can hold it: an exception's text may be anything."""
    return brief(why.replace("\n", " "), MOST_TOLD)[:MOST_TOLD]


def _pack_free(id: str, state: HookState, places: Mapping[int, int], entries: dict[str, Tensor]) -> None:
    """Tensors of one name, dtype and number of dimensions lie end to end; `index` has slot and shape of each."""
    for kind, index, table in (("free", "index", state.free), ("pending_free", "pending_index", state.pending_free)):
        groups: dict[str, list[tuple[int, Tensor]]] = {}
        for (slot, name), tensor in table.items():
            if slot in places:
                dtype = NAMES.get(tensor.dtype)
                if dtype is None or not is_plain(tensor):
                    raise StateError(
                        f"its state {name!r} cannot be kept: it is {_form(tensor)}", hook=id,
                        remedy="keep a plain tensor, or mend the action that put it there",
                    )  # fmt: skip
                groups.setdefault(f"{dtype}/{tensor.dim()}/{name}", []).append((places[slot], tensor.detach()))
        for group, found in groups.items():
            found.sort(key=lambda item: item[0])
            device = found[0][1].device
            entries[key_of(kind, id, group)] = _joined(t.to(device) for _, t in found)
            entries[key_of(index, id, group)] = torch.tensor([[s, *t.shape] for s, t in found], device="cpu")


def _joined(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])
