"""Wait until every rank does the same thing."""

from __future__ import annotations

from datetime import timedelta

from tenterhook.errors import RanksError
from tenterhook.ranks.world import rank, store, world_size

#: seconds that ranks wait for each other where hooks are changed; a step's collectives wait as long as the group does
PATIENCE = 60.0
#: absent ranks that are named
NAMED = 8

#: barriers passed so far; they name places in the store
_passed = 0


def barrier(what: str) -> None:
    """Wait until every rank is here, at most for PATIENCE; raise a RanksError that names the absent ones."""
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
        # As if it had not been called: the next barrier finds the place empty.
        shared.delete_key(f"{place}/{rank()}")
        shared.add(f"{place}/here", -1)
        named = ", ".join(map(str, absent[:NAMED])) + (f" and {len(absent) - NAMED} more" if absent[NAMED:] else "")
        raise RanksError(
            f"{what} was called here, and within {PATIENCE:g} s not on {len(absent)} of {world} ranks: {named}",
            rank=rank(),
            remedy=f"call it on every rank, without `if rank == 0:`: {what} is one act of all of them",
        ) from error
