"""Make all ranks reach the same decision: whether to raise an error, and whether their data is equal."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist

from tenterhook import errors
from tenterhook.errors import RanksError, TenterhookError
from tenterhook.ranks.world import device, max_over_ranks, rank, store, world_size

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

#: counter of errors, which makes the keys in the store unique
_errors = itertools.count()

Made = TypeVar("Made")


def raise_on_all(error: TenterhookError | None) -> None:
    """Raise one rank's error on every rank, before any rank continues.

    If several ranks have an error, all ranks raise the error of the lowest rank that has one.
    """
    world, mine = world_size(), rank()
    if world == 1:
        if error is not None:
            raise error
        return
    first = world - max_over_ranks([world - mine if error is not None else 0])[0]
    if first == world:
        return
    key = f"tenterhook/error/{next(_errors)}"
    if first == mine:
        assert error is not None
        error.located(rank=mine)
        store().set(key, _encode(error))
        raise error
    raise _decode(store().get(key), first)


def all_or_none(act: Callable[[], Made]) -> Made:
    """Call `act` and return its result. If `act` raises an error on any rank, all ranks raise that error."""
    error: TenterhookError | None = None
    try:
        made = act()
    except TenterhookError as met:
        error = met
    raise_on_all(error)
    return made


def all_equal(digest: bytes) -> bool:
    """Return True if every rank has the same digest."""
    if world_size() == 1:
        return True
    words = [int.from_bytes(digest[i : i + 4], "big") for i in range(0, min(len(digest), 16), 4)]
    found = max_over_ranks([*words, *(-w for w in words)])
    return found[: len(words)] == [-w for w in found[len(words) :]]


def any_of(flags: Sequence[bool]) -> list[bool]:
    """Return, for each flag, whether at least one rank has set it."""
    if world_size() == 1 or not flags:
        return list(flags)
    return [bool(one) for one in max_over_ranks([*map(int, flags)])]


def distinct_texts(text: str) -> dict[int, str]:
    """Return the distinct texts of all ranks, each keyed by the lowest rank that has it.

    Each distinct text is sent once, because thousands of ranks usually have only a few distinct texts.
    """
    if world_size() == 1:
        return {0: text}
    mine, data, world, place = rank(), text.encode(), world_size(), device()
    heads = torch.zeros(world, 2, dtype=torch.int64, device=place)
    digest = hashlib.sha256(data).digest()[:7]
    heads[mine] = torch.tensor([int.from_bytes(digest, "big"), len(data)], device=place)
    dist.all_reduce(heads)
    first: dict[int, int] = {}
    for by, (known, _) in enumerate(heads.tolist()):
        first.setdefault(known, by)
    lengths = {by: int(heads[by, 1]) for by in first.values()}
    parts = [torch.zeros(length, dtype=torch.uint8, device=place) for length in lengths.values()]
    if mine in lengths:
        parts[list(lengths).index(mine)] = torch.tensor(list(data), dtype=torch.uint8, device=place)
    flat = torch.cat(parts)
    dist.all_reduce(flat)
    return {by: bytes(part.tolist()).decode() for by, part in zip(lengths, flat.split(list(lengths.values())))}


def _encode(error: TenterhookError) -> bytes:
    sent = {name: value for name, value in vars(error).items() if name in _SENT}
    return json.dumps({"kind": type(error).__name__, **sent}).encode()


def _decode(text: bytes, by: int) -> TenterhookError:
    sent = json.loads(text)
    kind: type[TenterhookError] = _SHARED_BY_NAME.get(sent.pop("kind"), RanksError)
    return kind(**{**sent, "rank": by})
