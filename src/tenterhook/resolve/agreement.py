"""Check during `attach` that all ranks have the same plan and code, and decide which rank owns each target."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tenterhook import ranks
from tenterhook.errors import RanksError, RefusedError
from tenterhook.ranks import RankGroup
from tenterhook.resolve.dormancy import ELSEWHERE, NO_OPTIMIZER
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.resolution import Resolution, ResolvedHook, check_expected, check_targets
from tenterhook.resolve.sharding import GLOBAL_POINTS
from tenterhook.resolve.targets import Target, is_sharded


def resolve_on_all_ranks(group: RankGroup, what: str, resolve: Callable[[], Resolution]) -> Resolution:
    """Resolve the hooks on this rank, and give all ranks of the group, which have met, the same layout.

    If resolving fails on one rank, all ranks raise the same error.
    """
    return lay_out_on_all_ranks(group, what, ranks.all_or_none(group, resolve))


def lay_out_on_all_ranks(group: RankGroup, what: str, resolution: Resolution) -> Resolution:
    """Check that all ranks resolved the same hooks, and give each hook the same target order on all ranks."""
    if group.is_alone:
        return resolution
    _compare(group, what, [f"{one.hook!r} {one.definition.fingerprint}" for one in resolution])
    return lay_out(group, resolution)


def same_on_all_ranks(group: RankGroup, what: str, words: str) -> None:
    """Wait until all ranks have made this call. Raise an error if their `words` (the arguments as text) differ."""
    group.meet(what)
    _compare(group, what, [words])


def _compare(group: RankGroup, what: str, lines: list[str]) -> None:
    text = "\n".join(lines)
    if ranks.all_equal(group, _digest(text)):
        return
    (first, one), (second, other), *_ = ranks.distinct_texts(group, text).items()
    ours, theirs = one.split("\n"), other.split("\n")
    here = next((line for line in ours if line not in theirs), "no corresponding hook")
    there = next((line for line in theirs if line not in ours), "no corresponding hook")
    raise RanksError(
        f"the ranks called {what} with different arguments: rank {first} has {here}, but rank {second} has {there}",
        remedy=f"call {what} with the same arguments and the same code on every rank",
    )


def lay_out(group: RankGroup, resolution: Resolution) -> Resolution:
    """Give each hook the targets of all ranks in the same order, so that each merged row belongs to one target."""
    text = json.dumps([[target.name for target in one.targets] for one in resolution])
    even = ranks.all_equal(group, _digest(text))
    if even:
        for one in resolution:  # every rank raises the same error
            check_targets(one.hook, resolution.view, one.targets)
        hooks = resolution.hooks
    else:
        layouts = {rank: json.loads(found) for rank, found in ranks.distinct_texts(group, text).items()}
        hooks = tuple(
            _united(one, {rank: names[i] for rank, names in layouts.items()}) for i, one in enumerate(resolution)
        )
    shards = ranks.any_of(group, [any(is_sharded(t.parameter()) for t in one.targets if t.key) for one in hooks])
    _refuse_meshes(group, hooks, resolution.view)
    _refuse_optimizers(group, hooks)
    merged = []
    for one, sharded in zip(hooks, shards, strict=True):
        merges = _merges(one, resolution.view, even=even, sharded=sharded)
        computed_in_shards = sharded and not resolution.view.fsdp2 and one.hook.at not in GLOBAL_POINTS
        merged.append(replace(one, first=group.first, merges=merges, has_replicas=merges and computed_in_shards))
    return replace(resolution, hooks=tuple(merged))


def _refuse_meshes(group: RankGroup, hooks: Sequence[ResolvedHook], view: ModelView) -> None:
    """Refuse hooks that would have to merge over several meshes, of which each has its own gradients."""
    for one, refused in zip(hooks, ranks.any_of(group, [_is_on_several_meshes(one, group, view) for one in hooks])):
        if refused:
            raise RefusedError(
                "the parameters are sharded over some of the ranks, and the other ranks have other gradients",
                hook=one.hook.id,
                point=one.hook.at,
                remedy="use grad_final, which is the reduced gradient",
            )


def _is_on_several_meshes(one: ResolvedHook, group: RankGroup, view: ModelView) -> bool:
    if one.hook.point.side != "backward" or not one.definition.two_phase or one.definition.across_ranks or view.fsdp2:
        return False
    tensors: list[Any] = [target.parameter() for target in one.targets if target.key]
    return any(is_sharded(tensor) and tensor.device_mesh.size() < group.size for tensor in tensors)


def _refuse_optimizers(group: RankGroup, hooks: Sequence[ResolvedHook]) -> None:
    """Refuse hooks on parameters that the optimizers of some ranks hold, and those of other ranks do not."""
    spread = [one for one in hooks if one.hook.at in GLOBAL_POINTS]
    idle = sorted({name for one in spread for name, why in one.dormant.items() if why == NO_OPTIMIZER})
    if ranks.all_equal(group, _digest(json.dumps(idle))):
        return
    here = sorted({target.name for one in spread for target in one.targets})
    texts = ranks.distinct_texts(group, json.dumps([idle, here]))
    found = {rank: tuple(map(set, json.loads(text))) for rank, text in texts.items()}
    for one, (idle_here, _) in found.items():
        for other, (idle_there, names) in found.items():
            differing = sorted(name for name in idle_here - idle_there if name in names)
            if differing:
                raise RefusedError(
                    f"the optimizer of rank {other} holds {differing[0]!r}, but that of rank {one} does not, so no "
                    "rank has the gradients that the hook needs",
                    remedy="pass an optimizer that holds all parameters, such as ZeroRedundancyOptimizer",
                )


def _merges(one: ResolvedHook, view: ModelView, *, even: bool, sharded: bool) -> bool:
    definition = one.definition
    if not definition.two_phase or definition.across_ranks:
        return False
    if one.hook.at not in GLOBAL_POINTS:
        # The value is local to this rank. The results of a trigger are merged, because a trigger decides for all ranks.
        # Other results are merged only if the action observes shards that FSDP2 does not gather.
        return definition.trigger or (sharded and not view.fsdp2 and not definition.modifies)
    spread = not even and (not definition.modifies or one.over_hook)
    return sharded or spread


def merge_parts(one: ResolvedHook, parts: frozenset[str]) -> ResolvedHook:
    """Merge the results of a hook over all ranks if each rank has its own part of some targets."""
    if parts == one.parts:
        return one
    here = one.hook.at in GLOBAL_POINTS and any(target.name in parts for target in one.targets)
    return replace(one, parts=parts, merges=one.merges or (here and one.definition.two_phase))


def _united(one: ResolvedHook, layouts: Mapping[int, list[str]]) -> ResolvedHook:
    """Give a hook the targets from all pipeline stages. Targets that only other ranks have are dormant on this rank."""
    owners: dict[str, int] = {}
    for rank, names in layouts.items():
        for name in names:
            owners.setdefault(name, rank)
    check_expected(one.hook, list(owners))
    if one.hook.at not in GLOBAL_POINTS and not one.definition.trigger:
        return one
    here = {target.name: target for target in one.targets}
    kind = one.hook.point.on[0]
    targets = tuple(here.get(name) or Target(name, kind, _nowhere) for name in owners)
    away = {name: ELSEWHERE for name in owners if name not in here}
    return replace(one, targets=targets, dormant={**one.dormant, **away}, owners=owners)


def _nowhere() -> None:
    """Return None as the owner of a target that only other ranks have."""


def digest_of(things: Iterable[object]) -> int:
    """Return a digest of some objects as a number, which is the same on all ranks if the objects look the same."""
    return int.from_bytes(_digest("\n".join(map(repr, things)))[:6], "big")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
