"""Compare texts between ranks through the store, without a collective."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta

from tenterhook.ranks.world import rank, store, world_size


class Board:
    """Compare a text of this rank with the other ranks. No rank waits forever.

    The board keeps the store, so that it still works after the process group was destroyed.
    """

    def __init__(self) -> None:
        self._store, self.rank, self.world = store(), rank(), world_size()

    def other(self, name: str, text: str, patience: float) -> tuple[int, str] | None:
        """Return the number and the text of a rank whose text differs from this rank's, or None.

        Every rank compares its text with rank 0, so that the number of calls does not depend on the number of ranks.
        Rank 0 returns one of the ranks that differ. The ranks return together, or after `patience` seconds if a rank
        is missing.
        """
        place, shared, wait = f"tenterhook/board/{name}", self._store, timedelta(seconds=patience)
        try:
            if self.rank == 0:
                shared.set(f"{place}/0", text)
            shared.wait([f"{place}/0"], wait)
            first = shared.get(f"{place}/0").decode()
            if first != text:
                shared.set(f"{place}/other", json.dumps([self.rank, text]))
            if shared.add(f"{place}/here", 1) == self.world:
                shared.set(f"{place}/all", b"")
            with suppress(RuntimeError):
                shared.wait([f"{place}/all"], wait)
            if first != text:
                return 0, first
            if self.rank == 0 and shared.check([f"{place}/other"]):
                by, theirs = json.loads(shared.get(f"{place}/other"))
                return by, theirs
        except RuntimeError:  # rank 0 is missing, or the process that hosts the store has ended
            return None
        return None
