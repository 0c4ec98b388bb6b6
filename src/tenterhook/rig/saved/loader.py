"""Load a saved state into a rig: read the state hook by hook, compare it with the rig, and then apply it."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import Tensor, nn

from tenterhook import ranks
from tenterhook.actions import Definition
from tenterhook.errors import StateError, nearest
from tenterhook.plan import Hook
from tenterhook.ranks import RankGroup
from tenterhook.resolve.sharding import GLOBAL_POINTS
from tenterhook.resolve.targets import Target, device_of, kind_of, kinds_of
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.rig.runtime.environment import Environment
from tenterhook.rig.runtime.forward_pass import ForwardPass
from tenterhook.rig.runtime.hook_state import HookState
from tenterhook.rig.saved.format import SavedState, digest
from tenterhook.rig.saved.load_report import LoadReport
from tenterhook.rig.saved.reader import read_fired, read_ledger, read_names, read_partials, read_state, unreadable
from tenterhook.rig.saved.renaming import Renaming
from tenterhook.rig.saved.schema import Header, SavedClock, SavedHook
from tenterhook.rig.saved.writer import ROWS, fingerprint_of, surroundings

#: maximum number of saved targets per hook: FEW, or TIMES the number of its targets on the model if that is larger
FEW, TIMES = 4096, 4
#: kinds of entries that contain state, not just counts
STATEFUL = ("state", "pending", "partial", "free", "pending_free", "generator")

Saved = TypeVar("Saved", SavedState, "SavedState | None")


@dataclass(frozen=True, slots=True)
class HookSnapshot:
    """The saved state of one hook, which has been read and compared with the rig."""

    said: SavedHook
    #: maps the saved slot of each loaded target to the target's name on the model
    moves: Mapping[int, str]
    ledger: list[list[int]]
    state: HookState
    partials: Mapping[str, Tensor]
    fired: bytes


#: for each of the rig's hooks, by id: the hook, its action and its targets
Here = Mapping[str, tuple[Hook, Definition[...], Sequence[Target]]]


def read_on_all_ranks(group: RankGroup, read: Callable[[], Saved]) -> Saved:
    """Read the saved state on every rank. Raise an error if the ranks have states of different steps."""
    saved = ranks.all_or_none(group, read)
    step = "no state" if saved is None else f"step {saved.header.clock.step}"
    if not ranks.all_equal(group, hashlib.sha256(step.encode()).digest()):
        (one, mine), (other, theirs), *_ = ranks.distinct_texts(group, step).items()
        raise StateError(
            f"the ranks have different states: rank {one} has {mine}, but rank {other} has {theirs}",
            remedy="load the same checkpoint on every rank",
        )
    return saved


def compare(
    saved: SavedState, here: Here, renaming: Renaming, report: LoadReport, model: nn.Module, group: RankGroup
) -> dict[str, HookSnapshot]:
    """Return the state to load for each hook, and add every difference to the report. The rig is not changed."""
    kept = {}
    for hook in saved.plan:
        if hook.id in here:
            found = _keep(saved, renaming.hook(hook), here[hook.id], renaming, report, model, group)
            if found is not None:
                kept[hook.id] = found
    _compare_surroundings(saved, report)
    return kept


def compare_hooks(saved: SavedState, here: Here, report: LoadReport) -> None:
    """Report hooks that are only in the saved state or only in the rig.

    The report lists such a hook as a difference if state would be lost or missing, and as a note otherwise.
    """
    new = [id for id in here if id not in saved.header.hooks]
    for id in saved.header.hooks:
        if id in here:
            continue
        close = nearest(id, new, 1)
        fact = "saved, but not in this plan" + (f"; the nearest is {close[0]!r}" if close else "")
        if any(saved.entries(id, kind) for kind in STATEFUL):
            report.add("hook", fact, hook=id)
        else:
            report.notes.append(f"hook {id!r}: {fact}")
    for id in new:
        fact = "in this plan, but not saved, so it starts without state"
        if here[id][1].state:
            report.add("hook", fact, hook=id)
        else:
            report.notes.append(f"hook {id!r}: {fact}")


def compare_tensors(saved: SavedState, tensors: Mapping[str, Tensor], told: Callable[[str], None]) -> None:
    """Report tensor parameters that differ from their saved values."""
    for name, tensor in tensors.items():
        kept = saved.tensors.get(name)
        if kept is not None and (kind_of(kept) != kind_of(tensor) or digest(kept) != digest(tensor.contiguous())):
            told(f"the tensor {name!r} differs from the saved tensor")


def compare_clocks(saved: SavedState, optimizers: Sequence[str], clock: str | None, report: LoadReport) -> None:
    """Report a difference in the optimizers, or in the choice of the optimizer whose steps are counted."""
    then = saved.header.optimizers
    if then != list(optimizers):
        report.add(
            "clock",
            f"saved with {_listed(then)}, but this rig has {_listed(optimizers)}",
            remedy=None if optimizers else "pass optimizer=optimizer",
        )
    elif saved.header.clock.optimizer != clock:
        report.add(
            "clock",
            f"the saved rig counted steps of {saved.header.clock.optimizer!r}, but this rig counts steps of {clock!r}",
        )


def _listed(optimizers: Sequence[str]) -> str:
    return ", ".join(map(repr, optimizers)) or "no optimizer"


def _keep(
    saved: SavedState,
    was: Hook,
    found: tuple[Hook, Definition[...], Sequence[Target]],
    renaming: Renaming,
    report: LoadReport,
    model: nn.Module,
    group: RankGroup,
) -> HookSnapshot | None:
    hook, definition, targets = found
    id, said = hook.id, saved.header.hooks[hook.id]
    if said.action != definition.name:
        report.add("action", f"its action was {said.action!r} and is now {definition.name!r}", hook=id)
        return None
    if was.at != hook.at:
        report.add("hook", f"its point was {was.at} and is now {hook.at}", hook=id)
        return None
    for name in ("on", "do", "when", "expect", "on_error"):
        if getattr(was, name) != getattr(hook, name):
            then, now = (str(getattr(h, name)) for h in (was, hook))
            report.notes.append(f"hook {id!r}: {name} was {then} and is now {now}")
    _compare_code(said, definition, saved, report, id)
    ledger = read_ledger(saved, id, said)
    sites = ledger.shape[1]
    if sites > max(FEW, TIMES * len(targets)):
        report.add("target", f"saved for {sites} targets, but this model has {len(targets)}", hook=id)
        return None
    rows, names = ledger.tolist(), read_names(saved, id, sites)
    if hook.point.on == ("optimizer",):
        renaming = Renaming(None)  # the rules rename parts of the model, not optimizers
    several = saved.header.ranks > 1 or group.size > 1
    moves = _moves(hook, said, names, rows[ROWS.index("kind")], targets, renaming, report, several=several)
    state = read_state(saved, id, definition, sites, report, model)
    partials = read_partials(saved, id, definition, sites, device_of(model))
    kept = HookSnapshot(said, moves, rows, state, partials, read_fired(saved, id, definition, sites, partials))
    same = saved.header.ranks == group.size
    return kept if same else _of_other_ranks(saved.header, hook, kept, report, group)


def _of_other_ranks(
    header: Header, hook: Hook, kept: HookSnapshot, report: LoadReport, group: RankGroup
) -> HookSnapshot:
    """Keep the state that is still valid after the number of ranks changed, and report the state that is dropped."""
    then, now, mine, state = header.ranks, group.size, group.position, kept.state
    if kept.fired:
        report.notes.append(
            f"hook {hook.id!r}: values of the unfinished step are dropped, because they were saved on {then} ranks"
        )
    if hook.at in GLOBAL_POINTS:
        if header.sharded and (state.free or state.pending_free):
            report.add("state", f"its tensors are shards from {then} ranks, but the world size is {now}", hook=hook.id)
            state.free, state.pending_free = {}, {}
    elif state or state.generators:
        if mine >= then:
            report.notes.append(f"hook {hook.id!r}: rank {mine} was not saved, so it starts without state")
            state.clear()
        elif mine == 0 and now < then:
            report.notes.append(f"hook {hook.id!r}: the state of ranks {now} to {then - 1} is dropped")
    return replace(kept, partials={}, fired=b"")


def _compare_code(said: SavedHook, definition: Definition[...], saved: SavedState, report: LoadReport, id: str) -> None:
    name, fingerprint, here = definition.name, fingerprint_of(definition), surroundings()["python"]
    if said.version != definition.version:
        age = "newer" if said.version > definition.version else "older"
        fact = f"saved with version {said.version} of {name!r}, which is {age} than this version, {definition.version}"
        report.add("action", fact, hook=id)
    elif said.fingerprint != fingerprint and saved.header.python != here:
        report.notes.append(
            f"hook {id!r}: {name!r} was saved under Python {saved.header.python}, but this is Python {here}, "
            "so the code cannot be compared"
        )
    elif said.fingerprint != fingerprint:
        report.add("action", f"the code of {name!r} has changed since the state was saved", hook=id)


def _compare_surroundings(saved: SavedState, report: LoadReport) -> None:
    for name, here in surroundings().items():
        then = getattr(saved.header, name)
        if name != "python" and then != here:
            report.notes.append(f"{name} was {then} and is now {here}, so results may differ in the last bits")


def _moves(
    hook: Hook,
    said: SavedHook,
    names: Sequence[str],
    kinds: Sequence[int],
    targets: Sequence[Target],
    renaming: Renaming,
    report: LoadReport,
    *,
    several: bool,
) -> dict[int, str]:
    """Map each saved slot to a target on the model, and report the targets that do not fit."""
    here = {name: i for i, target in enumerate(targets) for name in (target.name, *target.aliases)}
    kinds_here, taps = kinds_of(targets), hook.point.on == ("tap",)
    moves: dict[int, str] = {}
    taken: set[str] = set()
    lost: list[tuple[str, str]] = []
    others: list[str] = []
    for slot, old in enumerate(names):
        new = renaming(old) if renaming else old
        found = here.get(new)
        name = targets[found].name if found is not None else new
        if name in taken or (found is None and not (taps and hook.selector.matches(new))):
            lost.append((old, new))
            continue
        taken.add(name)
        then = said.kinds[kinds[slot]] if kinds[slot] >= 0 else None
        now = kinds_here[found] if found is not None else None
        known = then is not None and now is not None  # the kind of a target on another rank is unknown
        if found is not None and (then is None) != (now is None) and not several:
            raise unreadable("ledger", hook.id)
        if then != now and (known or not several) and found is not None:
            if targets[found or 0].kind == "parameter":
                report.add("target", f"saved as {then}, but it is now {now}", hook=hook.id, target=name)
                continue
            others.append(f"{name!r} was {then} and is now {now}")
        moves[slot] = name
    if others:
        more = f", and {len(others) - 1} more changed class" if len(others) > 1 else ""
        report.notes.append(f"hook {hook.id!r}: {others[0]}{more}")
    new_here = [t.name for t in targets if t.name not in taken] if lost or len(taken) < len(targets) else []
    report.fits += len(moves)
    report.missing(hook.id, lost, new_here, list(taken))
    return moves


def place(kept: HookSnapshot, attached: AttachedHook, model: nn.Module) -> None:
    """Set a hook's state and counts to the saved values."""
    said, slots = kept.said, {site.name: site.slot for site in attached.sites}
    for name in kept.moves.values():
        if name not in slots:
            slots[name] = attached.add_site(Target(name, "tap", weakref.ref(model))).slot
    moves = {old: slots[name] for old, name in kept.moves.items()}
    attached.reset(due_steps=said.due, counted=said.counted, muted=said.muted)
    attached.state.carry(kept.state, moves)
    if attached.partials is not None and kept.fired:
        attached.partials.carry(kept.partials, kept.fired, moves)
    columns = list(zip(*kept.ledger))
    carried = {new: columns[old] for old, new in moves.items()}
    for site in attached.sites:
        column = carried.get(site.slot)
        if column is None:
            continue
        due, fired, changed, failed, rebound, first, last, _, muted, *skipped = column
        site.reset(due)
        site.fired, site.changed, site.failed, site.rebound = fired, changed, failed, rebound
        site.first, site.last = first, last
        if skipped:
            site.skipped = {why: n for why, n in zip(said.skipped, skipped, strict=True) if n} or None
        if muted >= 0:
            site.sleep(said.reasons[muted])


def place_clock(said: SavedClock, environment: Environment) -> None:
    """Set the step clock to the saved values."""
    clock, passes = environment.clock, environment.clock.passes
    clock.step, clock.tripped = said.step, said.tripped
    environment.gradients.load(said.accumulated)
    passes.counts = list(said.forwards)
    passes.forget()
    step, index, training = said.last
    passes.now = ForwardPass(step, index, frozenset(), training)
