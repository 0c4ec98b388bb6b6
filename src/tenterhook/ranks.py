"""The only caller of collectives, and of the store. On one process every function is the identity.

Every rank calls every function here, in the same order; what a step needs of them is decided at attach.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tenterhook import errors
from tenterhook.errors import RanksError, TenterhookError

#: seconds that ranks wait for each other where hooks are changed; a step's collectives wait as long as the group does
PATIENCE = 60.0
#: absent ranks that are named
NAMED = 8

#: errors that all ranks raise when one of them has met it; another arrives as a RanksError
SHARED = {
    kind.__name__: kind
    for kind in (
        errors.ActionError, errors.AttachedError, errors.ContractError, errors.DormantError, errors.ExpectError,
        errors.HookError, errors.InPlaceError, errors.MismatchError, errors.NoMatchError, errors.PlanError,
        errors.RefusedError, errors.ResolveError, errors.ReturnError, errors.StateError,
    )
}  # fmt: skip

#: acts of all ranks so far, and errors: they name places in the store
_met = 0
_errors = itertools.count()

Made = TypeVar("Made")


def rank() -> int:
    return dist.get_rank() if _several() else 0


def world_size() -> int:
    return dist.get_world_size() if _several() else 1


def launched() -> tuple[int, int]:
    """This process among all, and among those of its node, as torchrun has started it; whether or not, or no longer,
    there is a process group."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))


def _several() -> bool:
    return dist.is_available() and dist.is_initialized()


# -- where hooks are changed -------------------------------------------------------------------------------------------


def meet(what: str) -> None:
    """Wait until every rank is here; the ones that are not are named, and nobody waits longer than PATIENCE."""
    world = world_size()
    if world == 1:
        return
    global _met
    store, place = _store(), f"tenterhook/{_met}"
    store.set(f"{place}/{rank()}", what)
    if store.add(f"{place}/here", 1) == world:
        store.set(f"{place}/all", b"")
    try:
        store.wait([f"{place}/all"], timedelta(seconds=PATIENCE))
        _met += 1
    except Exception as error:
        absent = [r for r in range(world) if not store.check([f"{place}/{r}"])]
        # As if it had not been called: the next act of all ranks finds the place empty.
        store.delete_key(f"{place}/{rank()}")
        store.add(f"{place}/here", -1)
        named = ", ".join(map(str, absent[:NAMED])) + (f" and {len(absent) - NAMED} more" if absent[NAMED:] else "")
        raise RanksError(
            f"{what} was called here, and within {PATIENCE:g} s not on {len(absent)} of {world} ranks: {named}",
            rank=rank(), remedy=f"call it on every rank, without `if rank == 0:`: {what} is one act of all of them",
        ) from error  # fmt: skip


def agree(error: TenterhookError | None) -> None:
    """Raise on every rank what one of them has met, before any goes on; the lowest one's, if several have."""
    world, mine = world_size(), rank()
    if world == 1:
        if error is not None:
            raise error
        return
    first = world - _largest([world - mine if error is not None else 0])[0]
    if first == world:
        return
    key = f"tenterhook/error/{next(_errors)}"
    if first == mine:
        assert error is not None
        error.located(rank=mine)
        _store().set(key, _written(error))
        raise error
    raise _read(_store().get(key), first)


def all_or_none(act: Callable[[], Made]) -> Made:
    """What it makes; if it raises on one rank, all raise the same."""
    error: TenterhookError | None = None
    try:
        made = act()
    except TenterhookError as met:
        error = met
    agree(error)
    return made


def same(digest: bytes) -> bool:
    """Whether every rank has this digest."""
    if world_size() == 1:
        return True
    words = [int.from_bytes(digest[i : i + 4], "big") for i in range(0, min(len(digest), 16), 4)]
    found = _largest([*words, *(-w for w in words)])
    return found[: len(words)] == [-w for w in found[len(words) :]]


def any_of(flags: Sequence[bool]) -> list[bool]:
    """Of each, whether some rank has it set."""
    return list(flags) if world_size() == 1 or not flags else [bool(one) for one in _largest([*map(int, flags)])]


def gathered(text: str) -> dict[int, str]:
    """The different texts that ranks have, each by the first rank that has it; ten thousand ranks have few."""
    if world_size() == 1:
        return {0: text}
    mine, data, world, device = rank(), text.encode(), world_size(), _device()
    heads = torch.zeros(world, 2, dtype=torch.int64, device=device)
    digest = hashlib.sha256(data).digest()[:7]
    heads[mine] = torch.tensor([int.from_bytes(digest, "big"), len(data)], device=device)
    dist.all_reduce(heads)
    first: dict[int, int] = {}
    for by, (known, _) in enumerate(heads.tolist()):
        first.setdefault(known, by)
    lengths = {by: int(heads[by, 1]) for by in first.values()}
    parts = [torch.zeros(length, dtype=torch.uint8, device=device) for length in lengths.values()]
    if mine in lengths:
        parts[list(lengths).index(mine)] = torch.tensor(list(data), dtype=torch.uint8, device=device)
    flat = torch.cat(parts)
    dist.all_reduce(flat)
    return {by: bytes(part.tolist()).decode() for by, part in zip(lengths, flat.split(list(lengths.values())))}


class Board:
    """Where ranks read what others have pinned, and nobody waits for ever.

    It keeps the store of the process group, so that it can be read when the group is gone.
    """

    def __init__(self) -> None:
        self._store, self.rank, self.world = _store(), rank(), world_size()

    def other(self, name: str, text: str, patience: float) -> tuple[int, str] | None:
        """A rank that pinned another text, with it: rank 0, or on rank 0 one that differs; None if none is known.

        Ranks leave together, or when one has not come in time. All compare themselves with rank 0: a rank makes few
        calls however many there are.
        """
        place, store, wait = f"tenterhook/board/{name}", self._store, timedelta(seconds=patience)
        try:
            if self.rank == 0:
                store.set(f"{place}/0", text)
            store.wait([f"{place}/0"], wait)
            first = store.get(f"{place}/0").decode()
            if first != text:
                store.set(f"{place}/other", json.dumps([self.rank, text]))
            if store.add(f"{place}/here", 1) == self.world:
                store.set(f"{place}/all", b"")
            with suppress(RuntimeError):
                store.wait([f"{place}/all"], wait)
            if first != text:
                return 0, first
            if self.rank == 0 and store.check([f"{place}/other"]):
                by, theirs = json.loads(store.get(f"{place}/other"))
                return by, theirs
        except RuntimeError:  # rank 0 did not come, or the store went with the process that kept it
            return None
        return None


# -- in a step ---------------------------------------------------------------------------------------------------------


def merge(partials: Sequence[Mapping[str, Tensor]], how: Sequence[Mapping[str, str]]) -> list[dict[str, Tensor]]:
    """Partial results of shards, merged over all ranks, of all hooks at once.

    One sum and one maximum, however many there are: a norm goes as the sum of its squares.
    """
    if world_size() == 1:
        return [dict(one) for one in partials]
    merged: list[dict[str, Tensor]] = [{} for _ in partials]
    for largest, op in ((False, dist.ReduceOp.SUM), (True, dist.ReduceOp.MAX)):
        keys = [(i, n) for i, one in enumerate(partials) for n in sorted(one) if (how[i][n] == "max") is largest]
        if not keys:
            continue
        parts = [partials[i][n].square() if how[i][n] == "norm" else partials[i][n] for i, n in keys]
        flat = torch.cat([part.double().flatten() for part in parts]).to(_device())
        dist.all_reduce(flat, op=op)
        for (i, n), part in zip(keys, flat.split([part.numel() for part in parts]), strict=True):
            found = part.view_as(partials[i][n]).to(partials[i][n].device)
            merged[i][n] = found.sqrt() if how[i][n] == "norm" else found
    return merged


def _largest(numbers: Sequence[int]) -> list[int]:
    found = torch.tensor(numbers, dtype=torch.int64, device=_device())
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found.tolist()


def _device() -> torch.device:
    """Where the process group takes tensors from."""
    backend = dist.get_backend()
    return torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")


def _store() -> Any:
    """torch 2.13: the process group's own store has no public name; tests/ranks fails if this one goes."""
    return dist.distributed_c10d._get_default_store()


def _written(error: TenterhookError) -> bytes:
    place = {"fact": error.fact, "hook": error.hook, "target": error.target, "point": error.point, "rank": error.rank,
             "remedy": error.remedy}  # fmt: skip
    return json.dumps({"kind": type(error).__name__, **place}).encode()


def _read(text: bytes, by: int) -> TenterhookError:
    place = json.loads(text)
    return SHARED.get(place.pop("kind"), RanksError)(**{**place, "rank": by})
