"""Read and write the files of a run folder.

A run folder contains Parquet files, which are called parts, and a few JSON files. Each file is written completely or
not at all. Any Parquet reader can open the parts.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from tenterhook.errors import StoreError
from tenterhook.record.run_folder.atomic_file import write_file
from tenterhook.record.run_folder.columns import schema, sort_rows
from tenterhook.record.run_folder.part import (
    DEFAULT_LIMITS,
    GROUP_NUMBERS,
    GROUP_ROWS,
    PART_NAME,
    Part,
    ReadLimits,
    count_rows,
    describe,
    read_groups,
    read_part,
)
from tenterhook.record.run_folder.pyramid import KEY, PyramidBuilder

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
#: JSON files in a run folder
PLAN = "plan.json"
LEDGER = "ledger.json"
FINDINGS = "findings.json"
VERDICTS = "verdicts.json"
MODEL = "model.json"
_SIDECARS = frozenset((PLAN, LEDGER, FINDINGS, VERDICTS, MODEL))


class Folder:
    """A run folder on a filesystem that Arrow supports. Each file in the folder is complete or does not exist.

    A folder may come from an untrusted source. Only regular files are read, links are not followed, and sizes are
    compared with the limits first.
    """

    def __init__(self, path: str | os.PathLike[str], limits: ReadLimits = DEFAULT_LIMITS) -> None:
        try:
            from pyarrow import fs
        except ImportError as error:
            raise StoreError(
                "a store needs pyarrow, which is not installed", remedy="run pip install 'tenterhook[record]'"
            ) from error
        self.path = os.fspath(path)
        self.limits = limits
        if any("\ud800" <= letter <= "\udfff" for letter in self.path):
            raise StoreError(
                f"the path of the run folder {self.path!a} is not UTF-8, which Arrow and DuckDB need",
                remedy="rename the folder, or pass a link to it",
            )
        remote = "://" in self.path
        here = (fs.LocalFileSystem(), os.path.abspath(self.path))
        found: tuple[Any, str] = fs.FileSystem.from_uri(self.path) if remote else here
        self._fs, self._at = found
        #: the parts that were read, and the state of their files at that time
        self._known: dict[str, tuple[object, Part]] = {}
        self.local = isinstance(self._fs, fs.LocalFileSystem)

    def make(self) -> None:
        try:
            self._fs.create_dir(self._at, recursive=True)
        except OSError as error:
            raise StoreError(
                f"the run folder {self.path} cannot be created: {error}", remedy="choose another folder"
            ) from error

    def make_new(self) -> bool:
        """Create the folder. Return False if the path already exists, whatever it is."""
        if not self.local:
            if self.names():
                return False
            self.make()
            return True
        os.makedirs(os.path.dirname(self._at), exist_ok=True)
        try:
            os.mkdir(self._at)
        except FileExistsError:
            return False
        return True

    def names(self) -> list[str]:
        """Return the names of the regular files. Raise a StoreError if a file of the run is something else."""
        found = [name for name, _ in zip(self._listed(), range(self.limits.files + 1), strict=False)]
        if len(found) > self.limits.files:
            raise StoreError(
                f"the folder {self.path} has more than {self.limits.files:,} files",
                remedy="if you trust the folder, pass limits=th.ReadLimits(files=...) to th.open_run",
            )
        return sorted(found)

    def _listed(self) -> Iterator[str]:
        from pyarrow import fs

        if not self.local:
            found = self._fs.get_file_info(fs.FileSelector(self._at, allow_not_found=True))
            yield from (info.base_name for info in found if info.is_file)
            return
        try:
            entries = os.scandir(self._at)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self.path} is not a run folder: {error}", remedy="pass a folder") from error
        with entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield entry.name
                elif entry.name in _SIDECARS or PART_NAME.fullmatch(entry.name):
                    raise _not_regular(entry.name)

    def has_parts(self) -> bool:
        """Return True if the folder contains a part, which may be damaged."""
        return any(PART_NAME.fullmatch(name) for name in self.names())

    def full(self, name: str) -> str:
        return f"{self._at}/{name}" if name else self._at

    def read(self, name: str) -> bytes:
        """Return the content of a JSON file. Raise a StoreError if it is too large."""
        return self._opened(name, self._content)

    def _content(self, name: str, file: BinaryIO, size: int, limits: ReadLimits) -> bytes:
        if size > limits.text_bytes:
            raise StoreError(
                f"the file {name} has {size:,} bytes; the limit is {limits.text_bytes:,}",
                remedy="if you trust the folder, pass limits=th.ReadLimits(text_bytes=...) to th.open_run",
            )
        text = bytes(file.read(size))
        values = sum(text.count(mark) for mark in (b"[", b"{", b","))  # at least the number of values in JSON
        if values > limits.text_values:
            raise StoreError(
                f"the file {name} has up to {values:,} values; the limit is {limits.text_values:,}",
                remedy="if you trust the folder, pass limits=th.ReadLimits(text_values=...) to th.open_run",
            )
        return text

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a part with some columns or all of them, and verify their checksums."""
        import pyarrow as pa

        def read(name: str, file: BinaryIO, size: int, limits: ReadLimits) -> pa.Table:
            return pa.concat_tables(read_groups(name, file, size, limits, columns)).unify_dictionaries()

        return self._opened(name, read)

    def dataset(self, files: list[str]) -> Any:
        """Return the rows of some files as an Arrow dataset."""
        import pyarrow.dataset as ds

        return ds.dataset(files, filesystem=self._fs, format="parquet")

    def count(self, name: str) -> int:
        """Read a part, verify its checksums, and return the number of rows."""
        return self._opened(name, count_rows)

    def _opened(self, name: str, act: Callable[[str, BinaryIO, int, ReadLimits], T]) -> T:
        """Call a function with a file that is open for reading, and its size."""
        if not self.local:
            with self._fs.open_input_file(self.full(name)) as remote:
                return act(name, remote, remote.size(), self.limits)
        # Opening a FIFO waits for a writer, unless O_NONBLOCK is set.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(self.full(name), flags)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _not_regular(name) from error
            raise StoreError(f"the file {name} cannot be opened: {error}", remedy="check its permissions") from error
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise _not_regular(name)
            return act(name, file, about.st_size, self.limits)

    def write(self, name: str, data: bytes, *, new: bool = False) -> None:
        """Write a file completely or not at all. If `new` is True, raise an error instead of replacing a local file."""
        if self.local:
            write_file(self.full(name), data, new=new)
            return
        with self._fs.open_output_stream(self.full(name)) as stream:  # an object is visible only when it is complete
            stream.write(data)

    def delete(self, name: str) -> None:
        """Delete a file, unless another rank has deleted it already."""
        if self.local:  # listing a folder for each of thousands of files would take long
            with suppress(FileNotFoundError):
                os.unlink(self.full(name))
        elif name in self.names():
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
                names = [name for name in self.names() if PART_NAME.fullmatch(name)]
                return [part for name in names if (part := self._part(name)).rows]
            except FileNotFoundError:  # another process merged the part in the meantime
                continue
        raise StoreError(f"the parts in {self.path} changed while they were being listed", remedy="try again later")

    def _part(self, name: str) -> Part:
        """Return the description of a part. A local part that has not changed since the last call is not read again."""
        state, part = self._known.get(name, (None, None))
        now = self._state(name)
        if part is None or state is None or state != now:
            part = self._opened(name, read_part)
            self._known[name] = now, part
        return part

    def _state(self, name: str) -> object:
        """Return values that change if a local file changes, or None if they are unknown."""
        try:
            about = os.lstat(self.full(name)) if self.local else None
        except OSError:  # opening the file raises an error that names the reason
            return None
        return about and (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)

    def sweep(self) -> None:
        """Delete the replaced parts that an interrupted merge left behind."""
        there = self._all_parts()
        for name in sorted({old for part in there for old in part.replaces} & {part.name for part in there}):
            self.delete(name)

    def delete_steps(self, name: str, step: int) -> None:
        """Remove a step and all later ones from a part. Delete the part if nothing is left."""
        content = self._opened(name, partial(_encode_before, step))
        if content is None:
            self.delete(name)
        else:
            self.write(name, content)

    def write_part(self, name: str, table: pa.Table, replaces: Iterable[str] = (), *, new: bool = False) -> None:
        """Sort and write a part."""
        self.write(name, encode_part(table, replaces), new=new)


def encode_part(table: pa.Table, replaces: Iterable[str] = ()) -> bytes:
    """Sort rows, and return them as the content of a part."""
    return _encode([sort_rows(table)], _steps([table]), replaces)


def _encode(tables: Iterable[pa.Table], steps: tuple[int, int], replaces: Iterable[str]) -> bytes:
    """Return the content of a part, from tables of sorted rows. Only one table at a time must be in memory.

    The metadata of the part contains the format, the first and last steps, the replaced parts and a summary.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    summary = PyramidBuilder(steps)
    sink, columns = pa.BufferOutputStream(), schema().with_metadata(describe(steps, replaces))
    with pq.ParquetWriter(
        sink,
        columns,
        compression="zstd",
        write_page_checksum=True,
        version="2.6",
        use_dictionary=["hook", "target", "name", "rank"],
        column_encoding={"value": "BYTE_STREAM_SPLIT", "step": "DELTA_BINARY_PACKED"},
    ) as writer:
        for table in tables:
            summary.add(table)
            longest = pc.max(pc.list_value_length(table["values"])).as_py() or 1
            size = max(1, min(GROUP_ROWS, GROUP_NUMBERS // longest))
            writer.write_table(table.replace_schema_metadata(columns.metadata), row_group_size=size)
        text = summary.text()
        if text is not None:
            writer.add_key_value_metadata({KEY: text})
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _steps(tables: Iterable[pa.Table]) -> tuple[int, int]:
    """Return the first and the last step in tables."""
    import pyarrow.compute as pc

    ends = [step for table in tables for step in pc.min_max(table["step"]).as_py().values() if step is not None]
    return min(ends), max(ends)


def _encode_before(step: int, *opened: Any) -> bytes | None:
    """Return the rows of an open part before a step as the content of a new part, or None if there are no such rows."""
    import pyarrow.compute as pc

    def kept() -> Iterator[pa.Table]:
        groups = (group.filter(pc.field("step") < step) for group in read_groups(*opened))
        return (group for group in groups if len(group))

    return _encode(kept(), _steps(kept()), ()) if next(kept(), None) else None


def _not_regular(name: str) -> StoreError:
    return StoreError(
        f"{name} is a link, a folder or a device; only regular files are read", remedy="move it out of the folder"
    )


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
