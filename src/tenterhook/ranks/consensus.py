"""Make all ranks reach the same decision: whether to raise an error, and whether their data is equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from tenterhook import errors
from tenterhook.errors import RanksError, TenterhookError
from tenterhook.ranks.group import RankGroup

#: error classes that are raised unchanged on every rank; any other error becomes a RanksError on the other ranks
SHARED: tuple[type[TenterhookError], ...] = (
    errors.ActionError,
    errors.AttachedError,
    errors.ContractError,
    errors.DormantError,
    errors.ExpectError,
    errors.HookError,
    errors.InPlaceError,
    errors.MismatchError,
    errors.NoMatchError,
    errors.PlanError,
    errors.RefusedError,
    errors.ResolveError,
    errors.ReturnError,
    errors.StateError,
)
_SHARED_BY_NAME = {kind.__name__: kind for kind in SHARED}

#: attributes of an error that are sent to the other ranks
_SENT = ("fact", "hook", "target", "point", "rank", "remedy")

Made = TypeVar("Made")


def raise_on_all(group: RankGroup, error: TenterhookError | None, *, first: int | None = None) -> None:
    """Raise one rank's error on every rank, before any rank continues.

    If several ranks have an error, all ranks raise the error of the lowest rank that has one. `first` is the position
    of that rank if it is known already.
    """
    if group.is_alone:
        if error is not None:
            raise error
        return
    if first is None:
        first = group.size - group.max_of([group.size - group.position if error is not None else 0])[0]
    if first == group.size:
        return
    if first == group.position:
        assert error is not None
        error.located(rank=group.rank)
        group.post(_encode(error))
        raise error
    raise _decode(group.fetch(), group.members[first])


def all_or_none(group: RankGroup, act: Callable[[], Made]) -> Made:
    """Call `act` and return its result. If `act` raises an error on any rank, all ranks raise that error."""
    error: TenterhookError | None = None
    try:
        made = act()
    except TenterhookError as met:
        error = met
    raise_on_all(group, error)
    return made


def all_equal(group: RankGroup, digest: bytes) -> bool:
    """Return True if every rank has the same digest."""
    if group.is_alone:
        return True
    words = [int.from_bytes(digest[i : i + 4], "big") for i in range(0, min(len(digest), 16), 4)]
    found = group.max_of([*words, *(-w for w in words)])
    return found[: len(words)] == [-w for w in found[len(words) :]]


def any_of(group: RankGroup, flags: Sequence[bool]) -> list[bool]:
    """Return, for each flag, whether at least one rank has set it."""
    if group.is_alone or not flags:
        return list(flags)
    return [bool(one) for one in group.max_of([*map(int, flags)])]


def distinct_texts(group: RankGroup, text: str) -> dict[int, str]:
    """Return the distinct texts of all ranks, each keyed by the lowest rank that has it.

    Each distinct text is sent once, because thousands of ranks usually have only a few distinct texts.
    """
    if group.is_alone:
        return {group.rank: text}
    mine, data = group.position, text.encode()
    heads = torch.zeros(group.size, 2, dtype=torch.int64, device="cpu")
    digest = hashlib.sha256(data).digest()[:7]
    heads[mine] = torch.tensor([int.from_bytes(digest, "big"), len(data)], device="cpu")
    heads = group.sum(heads)
    first: dict[int, int] = {}
    for by, (known, _) in enumerate(heads.tolist()):
        first.setdefault(known, by)
    lengths = {by: int(heads[by, 1]) for by in first.values()}
    parts = [torch.zeros(length, dtype=torch.uint8, device="cpu") for length in lengths.values()]
    if mine in lengths:
        parts[list(lengths).index(mine)] = torch.tensor(list(data), dtype=torch.uint8, device="cpu")
    flat = group.sum(torch.cat(parts))
    texts = flat.split(list(lengths.values()))
    return {group.members[by]: bytes(part.tolist()).decode() for by, part in zip(lengths, texts)}


def _encode(error: TenterhookError) -> bytes:
    sent = {name: value for name, value in vars(error).items() if name in _SENT}
    return json.dumps({"kind": type(error).__name__, **sent}).encode()


def _decode(text: bytes, by: int) -> TenterhookError:
    sent = json.loads(text)
    kind: type[TenterhookError] = _SHARED_BY_NAME.get(sent.pop("kind"), RanksError)
    return kind(**{**sent, "rank": by})
