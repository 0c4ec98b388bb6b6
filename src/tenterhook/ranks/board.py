"""Compare texts between ranks through the store, without a collective."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta

from tenterhook.ranks.world import rank, store, world_size


class Board:
    """A board that compares the text of this rank with the texts of other ranks. Every wait has a timeout.

    The board holds a reference to the store, so that the board can be used even after the process group is destroyed.
    """

    def __init__(self) -> None:
        self._store, self.rank, self.world = store(), rank(), world_size()

    def other(self, name: str, text: str, patience: float) -> tuple[int, str] | None:
        """Return a rank whose text differs from the text of this rank, and that text, or None if no text differs.

        Every rank compares its text with the text of rank 0, so that the number of store operations per rank does not
        depend on the number of ranks. On rank 0, the result describes one of the ranks whose texts differ. The ranks
        return together, or after `patience` seconds if a rank is missing.
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
