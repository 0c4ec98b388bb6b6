"""Write the rows of a run into a folder of Parquet files."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from tenterhook.errors import StoreError
from tenterhook.record.arrow_tables import as_arrow
from tenterhook.record.rows import Batch, Row
from tenterhook.record.run_folder import writer_lock
from tenterhook.record.run_folder.folder import LEDGER, Folder, encode_part, merge_parts
from tenterhook.record.run_folder.part import PART_NAME, Part

#: the last attempt that the name of a part can contain
MAX_ATTEMPT = 10**9 - 1
#: number of rows that can be merged within the time limit for closing
MERGED_ROWS = 2**20


class Store:
    """A sink that writes the rows of a run into a folder of Parquet files.

    If the folder already contains a run, that run is resumed. Steps that are recorded again replace the earlier
    records. `th.open_run` reads the folder. Any Parquet reader can read the files. Only one process at a time can write
    the rows of a rank into a folder.

    Args:
        path: Run folder. The path may be a URI that Arrow supports, such as `s3://...`.
        linger: Seconds for which rows are collected before a file is written. This time increases with the number of
            files.
        close_timeout: Seconds for which the store may write nothing while it is closed. If it writes nothing for so
            long, the remaining rows are dropped with a warning. As long as it writes, it is waited for.

    Raises:
        StoreError: pyarrow is not installed, or the folder cannot be created.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import tenterhook as th
        >>> folder = tempfile.mkdtemp()
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> hook = th.Hook("grads", on="**", at="grad", do=th.stats())
        >>> with th.attach(model, hook, sinks=th.Store(folder)):
        ...     model(torch.ones(1, 1)).sum().backward()
        >>> th.open_run(folder).curve("grads", "weight", "norm")
        Curve(steps=[0], values=[1.0])
    """

    def __init__(self, path: str | os.PathLike[str], *, linger: float = 1.0, close_timeout: float = 30.0) -> None:
        self._folder = Folder(path)
        self._folder.make()
        self._linger = linger
        self.close_timeout = close_timeout
        names = [m for name in self._folder.names() if (m := PART_NAME.fullmatch(name))]
        self._attempt = max((int(m[1]) for m in names), default=0) + 1
        if self._attempt > MAX_ATTEMPT:
            raise StoreError(f"the run folder {path} has parts of too many attempts", remedy="choose another folder")
        self._number = 0
        self._rows = 0
        self._process = os.getpid()
        self._ranks: set[int] = set()
        #: two rigs may write to the same store
        self._lock = threading.Lock()
        self._superseded = not names
        #: for each rank that this store writes, the lock on the folder
        self._locks: dict[int, str] = {}
        # The first part is slow, because pyarrow is imported. Do this now, and not when the program is about to end.
        encode_part(as_arrow([Batch(0, 0, emitted=[Row(0, 0, "", "", "", 0.0)])]))

    @property
    def path(self) -> str:
        """Return the run folder as text."""
        return self._folder.path

    @property
    def linger(self) -> float:
        """Return the time between two parts, in seconds.

        The time increases during the run, so that a week of training produces only a few thousand parts.
        """
        return self._linger * (1.0 + self._number / 128)

    def keep(self, name: str, text: str) -> None:
        """Write a text file, such as the plan, the ledger or the findings, into the run folder.

        Args:
            name: Name of the file. An existing file with this name is replaced.
            text: Content of the file.

        Raises:
            StoreError: The file cannot be written.
        """
        try:
            self._folder.write(name, text.encode())
        except OSError as error:
            raise StoreError(f"{name} cannot be written: {error}", remedy="choose another folder") from error

    def begin(self, rank: int) -> None:
        """Lock the folder, so that no other process writes the rows of this rank. The rig calls this method.

        Args:
            rank: The rank whose rows will be written.

        Raises:
            StoreError: Another process writes to the folder.
        """
        if self._folder.local and rank not in self._locks:
            self._locks[rank] = writer_lock.acquire(self._folder.full(""), rank)

    def write(self, batches: Sequence[Batch]) -> None:
        """Write the rows of one or more steps as new parts. The sink's thread calls this method.

        Args:
            batches: The rows of each step.

        Raises:
            StoreError: The store was opened before this process was forked, or another process writes to the folder.
        """
        if os.getpid() != self._process:
            raise StoreError(
                "the store was opened before this process was forked, so only the parent process may write to it",
                remedy="open another store in this process",
            )
        with self._lock:
            self._write(batches)

    def _write(self, batches: Sequence[Batch]) -> None:
        import pyarrow as pa

        by_rank: dict[int, list[Batch]] = {}
        for batch in batches:
            by_rank.setdefault(batch.rank, []).append(batch)
        for rank, mine in by_rank.items():
            self.begin(rank)
            if not self._superseded:
                self._supersede(rank, min(batch.step for batch in mine))
            table = as_arrow(mine)
            self._ranks.add(rank)
            while len(table):
                self._number += 1
                try:
                    self._folder.write_part(Part.file_name(self._attempt, rank, self._number), table, new=True)
                except FileExistsError:  # another store writes into the same folder
                    continue
                self._rows += len(table)
                break
        pa.default_memory_pool().release_unused()  # otherwise Arrow would keep the memory that the largest part needed

    def close(self) -> None:
        """Merge the parts of this store into one part, unless they have too many rows to merge quickly."""
        with self._lock:
            try:
                if self._number > 1 and self._rows <= MERGED_ROWS and os.getpid() == self._process:
                    merge_parts(self._folder, self._attempt, self._ranks)
            finally:
                for path in self._locks.values():
                    writer_lock.release(path)
                self._locks.clear()

    def _supersede(self, rank: int, step: int) -> None:
        """Remove the steps that are about to be recorded again from the parts of earlier attempts."""
        self._superseded = True
        self._folder.sweep()
        self._folder.delete(LEDGER)  # it would mark the run as ended, also if this attempt is killed
        for part in self._folder.parts():
            if part.attempt == self._attempt or part.rank != rank or part.last < step:
                continue
            self._folder.delete_steps(part.name, step)
