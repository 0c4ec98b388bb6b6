"""The store: a sink that writes a run's rows into a folder of Parquet parts."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from tenterhook.errors import StoreError
from tenterhook.record.arrow_tables import as_arrow
from tenterhook.record.folder import PART_NAME, Folder, Part, merge_parts
from tenterhook.record.rows import Batch

#: rows that are merged within the time there is for closing
MERGED_ROWS = 2**20


class Store:
    """Write a run's rows; an existing run is continued, and its repeated steps replace the earlier ones."""

    def __init__(self, path: str | os.PathLike[str], *, linger: float = 1.0) -> None:
        self._folder = Folder(path)
        self._folder.make()
        self._linger = linger
        names = [m for name in self._folder.names() if (m := PART_NAME.fullmatch(name))]
        self._attempt = max((int(m[1]) for m in names), default=0) + 1
        self._number = 0
        self._rows = 0
        self._process = os.getpid()
        self._ranks: set[int] = set()
        #: two rigs may have the same one
        self._lock = threading.Lock()
        self._superseded = not names

    @property
    def path(self) -> str:
        return self._folder.path

    @property
    def linger(self) -> float:
        """Seconds between parts: more as the run goes on, so that a week of training leaves some thousand parts."""
        return self._linger * (1.0 + self._number / 128)

    def keep(self, name: str, text: str) -> None:
        """Write a file beside the parts: the plan, the ledger, findings."""
        self._folder.write(name, text.encode())

    def write(self, batches: Sequence[Batch]) -> None:
        if os.getpid() != self._process:
            raise StoreError(
                "the store was opened before this process was forked, and its parts are the parent's",
                remedy="open another one in this process",
            )
        with self._lock:
            self._write(batches)

    def _write(self, batches: Sequence[Batch]) -> None:
        import pyarrow as pa

        by_rank: dict[int, list[Batch]] = {}
        for batch in batches:
            by_rank.setdefault(batch.rank, []).append(batch)
        for rank, mine in by_rank.items():
            if not self._superseded:
                self._supersede(rank, min(batch.step for batch in mine))
            table = as_arrow(mine)
            self._ranks.add(rank)
            while len(table):
                self._number += 1
                try:
                    self._folder.write_part(Part.file_name(self._attempt, rank, self._number), table, new=True)
                except FileExistsError:  # another store writes into this folder, too
                    continue
                self._rows += len(table)
                break
        pa.default_memory_pool().release_unused()  # it would keep what the largest part needed

    def close(self) -> None:
        """Merge small parts into one, if that takes little time."""
        with self._lock:
            if self._number > 1 and self._rows <= MERGED_ROWS and os.getpid() == self._process:
                merge_parts(self._folder, self._attempt, self._ranks)

    def _supersede(self, rank: int, step: int) -> None:
        """Delete the steps that are about to be repeated from what earlier attempts wrote."""
        import pyarrow.compute as pc

        self._superseded = True
        self._folder.sweep()
        for part in self._folder.parts():
            if part.attempt == self._attempt or part.rank != rank or part.last < step:
                continue
            kept = self._folder.table(part.name).filter(pc.field("step") < step)
            if len(kept):
                self._folder.write_part(part.name, kept)
            else:
                self._folder.delete(part.name)
