"""What all ranks agree on before anything is touched: the plan, the code behind it, and who has which target."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from tenterhook import ranks
from tenterhook.errors import RanksError
from tenterhook.plan import Plan
from tenterhook.resolve.model_view import Ground
from tenterhook.resolve.resolution import ELSEWHERE, Claim, check_expected, check_targets
from tenterhook.resolve.sharding import GLOBAL
from tenterhook.resolve.targets import Target, is_sharded


def accord(what: str, resolved: Callable[[], tuple[Claim, ...]], ground: Ground) -> tuple[Claim, ...]:
    """The claims of this rank, laid out as on all others. All ranks go on, or all raise the same error."""
    if ranks.world_size() == 1:
        return resolved()
    ranks.barrier(what)
    return agreed(what, ranks.all_or_none(resolved), ground)


def agreed(what: str, claims: tuple[Claim, ...], ground: Ground) -> tuple[Claim, ...]:
    """The same, of claims that were made on every rank."""
    if ranks.world_size() == 1:
        return claims
    _compare(what, [f"{claim.hook!r} {claim.definition.fingerprint}" for claim in claims])
    return _laid_out(claims, ground)


def accord_on(what: str, words: str) -> None:
    """All ranks do this, with the same words."""
    if ranks.world_size() > 1:
        ranks.barrier(what)
        _compare(what, [words])


def _compare(what: str, lines: list[str]) -> None:
    text = "\n".join(lines)
    if ranks.all_equal(_digest(text)):
        return
    (first, one), (second, other), *_ = ranks.distinct_texts(text).items()
    ours, theirs = one.split("\n"), other.split("\n")
    here = next((line for line in ours if line not in theirs), "nothing more")
    there = next((line for line in theirs if line not in ours), "nothing more")
    raise RanksError(
        f"the ranks do not {what} the same: rank {first} has {here}, rank {second} has {there}",
        remedy=f"{what} the same plan, with the same code, on every rank",
    )


def _laid_out(claims: tuple[Claim, ...], ground: Ground) -> tuple[Claim, ...]:
    """With the targets of all ranks, in one order, so that a merge means the same place everywhere."""
    text = json.dumps([[target.name for target in claim.targets] for claim in claims])
    even = ranks.all_equal(_digest(text))
    if even:
        for claim in claims:  # it says the same everywhere
            check_targets(claim.hook, ground, claim.targets)
    else:
        layouts = {by: json.loads(found) for by, found in ranks.distinct_texts(text).items()}
        claims = tuple(_united(claim, {by: names[i] for by, names in layouts.items()})
                       for i, claim in enumerate(claims))  # fmt: skip
    parts = ranks.any_of([any(is_sharded(t.parameter()) for t in claim.targets if t.key) for claim in claims])
    return tuple(
        replace(claim, merges=_merges(claim, ground, even=even, sharded=sharded))
        for claim, sharded in zip(claims, parts, strict=True)
    )


def _merges(claim: Claim, ground: Ground, *, even: bool, sharded: bool) -> bool:
    definition = claim.definition
    if not definition.two_phase:
        return False
    if claim.hook.at not in GLOBAL:
        # A trigger decides for all ranks; other numbers of a local point are this rank's.
        return definition.trigger or (sharded and not ground.fully_sharded and not definition.modifies)
    spread = not even and (not definition.modifies or claim.over_hook)
    return sharded or spread


def _united(claim: Claim, layouts: Mapping[int, list[str]]) -> Claim:
    """Of stages, each of which has other targets: all of them. Those of others sleep here."""
    owners: dict[str, int] = {}
    for by, names in layouts.items():
        for name in names:
            owners.setdefault(name, by)
    check_expected(claim.hook, list(owners))
    if claim.hook.at not in GLOBAL and not claim.definition.trigger:
        return claim
    here = {target.name: target for target in claim.targets}
    kind = claim.hook.point.on[0]
    targets = tuple(here.get(name) or Target(name, kind, cast(Any, _nowhere)) for name in owners)
    away = {name: ELSEWHERE for name in owners if name not in here}
    return replace(claim, targets=targets, dormant={**claim.dormant, **away}, owners=owners)


def _nowhere() -> None:
    """The owner of a target that another rank has."""


def digest_of(plan: Plan) -> Tensor:
    """A number and its opposite: the largest of all ranks' are these where all have the same."""
    number = float(int.from_bytes(_digest("\n".join(map(repr, plan)))[:6], "big"))
    return torch.tensor([number, -number], dtype=torch.float64)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
