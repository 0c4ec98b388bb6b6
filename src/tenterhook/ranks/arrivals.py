"""Count ranks as they arrive at a place, with few store operations for any number of ranks."""

from __future__ import annotations

from itertools import islice
from typing import Any

#: ranks in a block; a full block arrives at the next level of the tree
BLOCK = 32


class Arrivals:
    """A tree of counters in the store.

    Each rank adds to the counter of its block. The rank that fills a block adds to the counter of the block above it.
    So a rank needs a number of operations that grows with the logarithm of the number of ranks, to arrive and to find
    ranks that are missing.

    Args:
        store: The store.
        place: The first part of all keys.
        size: The number of ranks that are expected.
    """

    def __init__(self, store: Any, place: str, size: int) -> None:
        self._store = store
        self._place = place
        self._size = size

    @property
    def done(self) -> str:
        """Return the key that exists as soon as all ranks have arrived."""
        return f"{self._place}/all"

    @property
    def _total(self) -> str:
        """Return the key of the counter of all ranks."""
        return f"{self._place}/total"

    def arrive(self, position: int) -> None:
        """Count the rank at this position of the group."""
        self._store.set(self._mark(position), b"")
        self._store.add(self._total, 1)
        self._add(0, position, 1)

    def withdraw(self, position: int) -> None:
        """Take back an arrival, so that the same place can be used again."""
        self._store.delete_key(self._mark(position))
        self._store.add(self._total, -1)
        self._add(0, position, -1)

    def missing(self, limit: int) -> tuple[list[int], int]:
        """Return the positions of ranks that have not arrived, at most `limit`, and the number of all of them."""
        level, blocks = 0, [0]
        while self._blocks(level) > 1:
            level += 1
        for below in range(level, -1, -1):
            inside = (one for block in blocks for one in self._inside(below, block))
            blocks = list(islice((one for one in inside if not self._is_here(below, one)), limit))
        return blocks, self._size - int(self._store.add(self._total, 0))

    def _add(self, level: int, number: int, step: int) -> None:
        """Add to the counter of a block. If the block becomes full, or is no longer full, tell the block above it."""
        block = number // BLOCK
        now, full = int(self._store.add(self._key(level, block), step)), len(self._inside(level, block))
        if now != full - (step < 0):
            return
        if self._blocks(level) > 1:
            self._add(level + 1, block, step)
        elif step > 0:
            self._store.set(self.done, b"")

    def _blocks(self, level: int) -> int:
        """Return the number of blocks at a level. Level 0 has the blocks of ranks."""
        width: int = BLOCK ** (level + 1)
        return -(-self._size // width)

    def _inside(self, level: int, block: int) -> range:
        """Return the ranks, or the blocks of the level below, that a block contains."""
        below = self._blocks(level - 1) if level else self._size
        return range(block * BLOCK, min((block + 1) * BLOCK, below))

    def _is_here(self, level: int, number: int) -> bool:
        if level == 0:
            return bool(self._store.check([self._mark(number)]))
        return self._read(level - 1, number) >= len(self._inside(level - 1, number))

    def _read(self, level: int, block: int) -> int:
        return int(self._store.add(self._key(level, block), 0))

    def _mark(self, position: int) -> str:
        return f"{self._place}/{position}"

    def _key(self, level: int, block: int) -> str:
        return f"{self._place}/{level}/{block}"
