"""Wait until every rank has made the same call."""

from __future__ import annotations

from datetime import timedelta

from tenterhook.errors import RanksError
from tenterhook.ranks.world import rank, store, world_size

#: seconds to wait for the other ranks when hooks change; collectives in a step use the timeout of the process group
PATIENCE = 60.0
#: maximum number of missing ranks that an error lists
NAMED = 8

#: number of barriers so far, which makes the keys in the store unique
_passed = 0


def barrier(what: str) -> None:
    """Wait until every rank has called this function, for at most PATIENCE seconds.

    If a rank does not call it in time, raise a RanksError that lists the missing ranks. `what` is the public call that
    the error names.
    """
    world = world_size()
    if world == 1:
        return
    global _passed
    shared, place = store(), f"tenterhook/{_passed}"
    shared.set(f"{place}/{rank()}", what)
    if shared.add(f"{place}/here", 1) == world:
        shared.set(f"{place}/all", b"")
    try:
        shared.wait([f"{place}/all"], timedelta(seconds=PATIENCE))
        _passed += 1
    except Exception as error:
        absent = [r for r in range(world) if not shared.check([f"{place}/{r}"])]
        # Undo this call, so that the next barrier can use the same keys.
        shared.delete_key(f"{place}/{rank()}")
        shared.add(f"{place}/here", -1)
        named = ", ".join(map(str, absent[:NAMED])) + (f" and {len(absent) - NAMED} more" if absent[NAMED:] else "")
        raise RanksError(
            f"{len(absent)} of {world} ranks did not call {what} within {PATIENCE:g} s: {named}",
            rank=rank(),
            remedy=f"call {what} on every rank, not inside `if rank == 0:`",
        ) from error
