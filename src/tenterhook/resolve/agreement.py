"""Check during `attach` that all ranks have the same plan and code, and decide which rank owns each target."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tenterhook import ranks
from tenterhook.errors import RanksError
from tenterhook.plan import Plan
from tenterhook.resolve.dormancy import ELSEWHERE
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.resolution import Resolution, ResolvedHook, check_expected, check_targets
from tenterhook.resolve.sharding import GLOBAL_POINTS
from tenterhook.resolve.targets import Target, is_sharded


def resolve_on_all_ranks(what: str, resolve: Callable[[], Resolution]) -> Resolution:
    """Resolve the hooks on this rank, and give all ranks the same layout.

    If resolving fails on one rank, all ranks raise the same error.
    """
    if ranks.world_size() == 1:
        return resolve()
    ranks.barrier(what)
    return lay_out_on_all_ranks(what, ranks.all_or_none(resolve))


def lay_out_on_all_ranks(what: str, resolution: Resolution) -> Resolution:
    """Check that all ranks resolved the same hooks, and give each hook the same target order on all ranks."""
    if ranks.world_size() == 1:
        return resolution
    _compare(what, [f"{one.hook!r} {one.definition.fingerprint}" for one in resolution])
    return _laid_out(resolution)


def same_on_all_ranks(what: str, words: str) -> None:
    """Wait until all ranks have made this call. Raise an error if their `words` (the arguments as text) differ."""
    if ranks.world_size() > 1:
        ranks.barrier(what)
        _compare(what, [words])


def _compare(what: str, lines: list[str]) -> None:
    text = "\n".join(lines)
    if ranks.all_equal(_digest(text)):
        return
    (first, one), (second, other), *_ = ranks.distinct_texts(text).items()
    ours, theirs = one.split("\n"), other.split("\n")
    here = next((line for line in ours if line not in theirs), "no corresponding hook")
    there = next((line for line in theirs if line not in ours), "no corresponding hook")
    raise RanksError(
        f"the ranks called {what} with different arguments: rank {first} has {here}, but rank {second} has {there}",
        remedy=f"call {what} with the same arguments and the same code on every rank",
    )


def _laid_out(resolution: Resolution) -> Resolution:
    """Give each hook the targets of all ranks in the same order, so that each merged row belongs to one target."""
    text = json.dumps([[target.name for target in one.targets] for one in resolution])
    even = ranks.all_equal(_digest(text))
    if even:
        for one in resolution:  # every rank raises the same error
            check_targets(one.hook, resolution.view, one.targets)
        hooks = resolution.hooks
    else:
        layouts = {rank: json.loads(found) for rank, found in ranks.distinct_texts(text).items()}
        hooks = tuple(
            _united(one, {rank: names[i] for rank, names in layouts.items()}) for i, one in enumerate(resolution)
        )
    parts = ranks.any_of([any(is_sharded(t.parameter()) for t in one.targets if t.key) for one in hooks])
    merged = (
        replace(one, merges=_merges(one, resolution.view, even=even, sharded=sharded))
        for one, sharded in zip(hooks, parts, strict=True)
    )
    return replace(resolution, hooks=tuple(merged))


def _merges(one: ResolvedHook, view: ModelView, *, even: bool, sharded: bool) -> bool:
    definition = one.definition
    if not definition.two_phase:
        return False
    if one.hook.at not in GLOBAL_POINTS:
        # The value is local to this rank. The results of a trigger are merged, because a trigger decides for all ranks.
        # Other results are merged only if the action observes shards that FSDP2 does not gather.
        return definition.trigger or (sharded and not view.fsdp2 and not definition.modifies)
    spread = not even and (not definition.modifies or one.over_hook)
    return sharded or spread


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


def digest_of(plan: Plan) -> Tensor:
    """Return a digest of the plan as a number, and the negative of that number.

    The maxima of both numbers over all ranks equal the numbers of this rank only if all plans are the same.
    """
    number = float(int.from_bytes(_digest("\n".join(map(repr, plan)))[:6], "big"))
    return torch.tensor([number, -number], dtype=torch.float64)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
