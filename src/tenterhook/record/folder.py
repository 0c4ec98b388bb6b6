"""Read and write the files of a run folder.

A run folder contains Parquet files, which are called parts, and a few JSON files. Each file is written completely or
not at all. Any Parquet reader can open the parts.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tenterhook.errors import StoreError
from tenterhook.record.arrow_tables import sort_rows

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
#: JSON files in a run folder
PLAN = "plan.json"
LEDGER = "ledger.json"
FINDINGS = "findings.json"
#: rows per row group; reading one curve loads whole row groups
GROUP_ROWS = 2**17
#: attempt, rank and number; a merged part's name contains the first and last numbers of the parts that it replaces
PART_NAME = re.compile(r"part-(\d{4,})-(\d+)-(\d{6,})(?:-(\d{6,}))?\.parquet")


class Folder:
    """A run folder on a filesystem that Arrow supports. Each file in the folder is complete or does not exist."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            from pyarrow import fs
        except ImportError as error:
            raise StoreError(
                "a store needs pyarrow, which is not installed", remedy="run pip install 'tenterhook[record]'"
            ) from error
        self.path = os.fspath(path)
        remote = "://" in self.path
        here = (fs.LocalFileSystem(), os.path.abspath(self.path))
        found: tuple[Any, str] = fs.FileSystem.from_uri(self.path) if remote else here
        self._fs, self._at = found
        self._local = isinstance(self._fs, fs.LocalFileSystem)

    def make(self) -> None:
        self._fs.create_dir(self._at, recursive=True)

    def names(self) -> list[str]:
        from pyarrow import fs

        found = self._fs.get_file_info(fs.FileSelector(self._at, allow_not_found=True))
        return sorted(info.base_name for info in found if info.is_file)

    def full(self, name: str) -> str:
        return str(PurePosixPath(self._at) / name)

    def read(self, name: str) -> bytes:
        with self._fs.open_input_stream(self.full(name)) as stream:
            return bytes(stream.read())

    def table(self, name: str) -> pa.Table:
        import pyarrow.parquet as pq

        return pq.read_table(self.full(name), filesystem=self._fs, page_checksum_verification=True, partitioning=None)

    def metadata(self, name: str) -> dict[bytes, bytes]:
        import pyarrow.parquet as pq

        return pq.read_schema(self.full(name), filesystem=self._fs).metadata or {}

    def write(self, name: str, data: bytes, *, new: bool = False) -> None:
        """Write a file completely or not at all. If `new` is True, raise an error instead of replacing a local file."""
        if not self._local:  # in an object store, an object is visible only when it is complete
            with self._fs.open_output_stream(self.full(name)) as stream:
                stream.write(data)
            return
        temporary = self.full(f".{name}.{os.getpid()}.{threading.get_ident()}")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if new:
                os.link(temporary, self.full(name))
            else:
                os.replace(temporary, self.full(name))
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
        directory = os.open(self._at, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def delete(self, name: str) -> None:
        if name in self.names():  # another rank may have deleted the file
            self._fs.delete_file(self.full(name))

    # -- parts -------------------------------------------------------------------------------------------------------

    def parts(self) -> list[Part]:
        """Return the parts in the order in which they were written, except those that a merged part replaces."""
        found = self._all_parts()
        replaced = {name for part in found for name in part.replaces}
        return sorted((p for p in found if p.name not in replaced), key=lambda p: (p.attempt, p.number))

    def _all_parts(self) -> list[Part]:
        for _ in range(8):
            try:
                return [Part(self, name) for name in self.names() if PART_NAME.fullmatch(name)]
            except FileNotFoundError:  # another process merged the part in the meantime
                continue
        raise StoreError(f"the parts in {self.path} changed while they were being listed", remedy="try again later")

    def sweep(self) -> None:
        """Delete the replaced parts that an interrupted merge left behind."""
        there = self._all_parts()
        for name in sorted({old for part in there for old in part.replaces} & {part.name for part in there}):
            self.delete(name)

    def write_part(self, name: str, table: pa.Table, replaces: Iterable[str] = (), *, new: bool = False) -> None:
        """Sort and write a part. Its metadata contains the format, the first and last steps, and the replaced parts."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        table = sort_rows(table)
        steps = pc.min_max(table["step"]).as_py()
        about = {"tenterhook": FORMAT, "first": steps["min"], "last": steps["max"], "replaces": list(replaces)}
        table = table.replace_schema_metadata({"tenterhook": json.dumps(about)})
        sink = pa.BufferOutputStream()
        pq.write_table(
            table,
            sink,
            compression="zstd",
            row_group_size=GROUP_ROWS,
            write_page_checksum=True,
            version="2.6",
            use_dictionary=["hook", "target", "name", "rank"],
            column_encoding={"value": "BYTE_STREAM_SPLIT", "step": "DELTA_BINARY_PACKED"},
        )
        self.write(name, sink.getvalue().to_pybytes(), new=new)


class Part:
    """A part of a run, with its attempt number, the rank that wrote it, and its first and last steps."""

    def __init__(self, folder: Folder, name: str) -> None:
        found = PART_NAME.fullmatch(name)
        assert found is not None
        self.folder, self.name = folder, name
        self.attempt, self.rank, self.number = int(found[1]), int(found[2]), int(found[3])
        self.last_number = int(found[4] or found[3])
        try:
            about = json.loads(folder.metadata(name)[b"tenterhook"])
            self.first, self.last, self.replaces = int(about["first"]), int(about["last"]), list(about["replaces"])
        except FileNotFoundError:
            raise
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise StoreError(f"the part {name} cannot be read: {error}", remedy="move it out of the folder") from error

    @staticmethod
    def file_name(attempt: int, rank: int, number: int, last_number: int | None = None) -> str:
        tail = "" if last_number is None else f"-{last_number:06}"
        return f"part-{attempt:04}-{rank}-{number:06}{tail}.parquet"


def superseded_from(parts: Iterable[Part]) -> dict[str, int | None]:
    """Map each part's name to the earliest step that later attempts of the same rank recorded, or to None."""
    parts = list(parts)
    first: dict[tuple[int, int], int] = {}
    for part in parts:
        key = (part.rank, part.attempt)
        first[key] = min(first.get(key, part.first), part.first)

    def begun_anew(part: Part) -> int | None:
        later = (s for (rank, attempt), s in first.items() if rank == part.rank and attempt > part.attempt)
        return min(later, default=None)

    return {part.name: begun_anew(part) for part in parts}


def last_step(path: str | os.PathLike[str]) -> int:
    """Return the last recorded step in a run folder, or -1 if the folder has no parts."""
    return max((part.last for part in Folder(path).parts()), default=-1)


def merge_parts(folder: Folder, attempt: int | None = None, ranks: Iterable[int] | None = None) -> None:
    """Merge the parts into one part for each attempt and rank.

    The new part lists the parts that it replaces, so a reader always sees each row exactly once.
    """
    import pyarrow as pa

    folder.sweep()
    groups: dict[tuple[int, int], list[Part]] = {}
    for part in folder.parts():
        if attempt in (None, part.attempt) and (ranks is None or part.rank in ranks):
            groups.setdefault((part.attempt, part.rank), []).append(part)
    for (number, rank), parts in groups.items():
        if len(parts) > 1:
            table = pa.concat_tables([folder.table(p.name) for p in parts]).unify_dictionaries()
            old = [p.name for p in parts]
            first, last = min(p.number for p in parts), max(p.last_number for p in parts)
            name = Part.file_name(number, rank, first, last)
            folder.write_part(name, table, replaces=old)
            for name in old:
                folder.delete(name)
