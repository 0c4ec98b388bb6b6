"""Compare texts between ranks through the store, without a collective."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta

from tenterhook.ranks.world import rank, store, world_size


class Board:
    """Compare what ranks saw; no rank waits for ever.

    It keeps the store of the process group, so that it works when the group is gone.
    """

    def __init__(self) -> None:
        self._store, self.rank, self.world = store(), rank(), world_size()

    def other(self, name: str, text: str, patience: float) -> tuple[int, str] | None:
        """Return a rank with another text, and that text: rank 0, or on rank 0 one that differs; None if none is known.

        Ranks leave together, or when one has not come in time. All compare themselves with rank 0: a rank makes few
        calls however many there are.
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
        except RuntimeError:  # rank 0 did not come, or the store went with the process that kept it
            return None
        return None
