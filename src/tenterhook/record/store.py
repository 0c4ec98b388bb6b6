"""The store: a run's rows in a folder of Parquet parts, each written whole, that any reader of Parquet opens."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tenterhook.errors import StoreError
from tenterhook.record.rows import Batch, Table

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
#: kept beside the parts
PLAN = "plan.json"
LEDGER = "ledger.json"
FINDINGS = "findings.json"
#: rows of a row group: what is read to find one curve in a part
GROUP = 2**17
#: rows that are merged within the time there is for closing
MERGED = 2**20
#: attempt, rank and number; of a merged one the first number and the last
_PART = re.compile(r"part-(\d{4,})-(\d+)-(\d{6,})(?:-(\d{6,}))?\.parquet")
#: in this order a curve lies together
ORDER = ("hook", "target", "name", "rank", "step")


def schema() -> pa.Schema:
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([
        ("step", pa.int64()), ("rank", pa.int32()), ("hook", word), ("target", word), ("name", word),
        ("value", pa.float64()), ("values", pa.list_(pa.float64())), ("call", pa.int32()), ("leaf", pa.int32()),
    ])  # fmt: skip


class Folder:
    """Files of a run, on whatever filesystem: whole under their names, or not there."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            from pyarrow import fs
        except ImportError as error:
            raise StoreError(
                "a store needs pyarrow, which is not installed", remedy="pip install 'tenterhook[record]'"
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
        """`new` refuses to take the place of another."""
        if not self._local:  # an object appears when it is whole
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
        if name in self.names():  # another rank may have swept it away
            self._fs.delete_file(self.full(name))

    # -- parts -------------------------------------------------------------------------------------------------------

    def parts(self) -> list[Part]:
        """In the order they were written; those that another one replaces are left out."""
        found = self._there()
        replaced = {name for part in found for name in part.replaces}
        return sorted((p for p in found if p.name not in replaced), key=lambda p: (p.attempt, p.number))

    def _there(self) -> list[Part]:
        for _ in range(8):
            try:
                return [Part(self, name) for name in self.names() if _PART.fullmatch(name)]
            except FileNotFoundError:  # merged into another one meanwhile
                continue
        raise StoreError(f"the parts in {self.path} come and go", remedy="read it when less is written")

    def sweep(self) -> None:
        """Take away what a merge that was cut off has left, before its part is touched that says so."""
        there = self._there()
        for name in sorted({old for part in there for old in part.replaces} & {part.name for part in there}):
            self.delete(name)

    def write_part(self, name: str, table: pa.Table, replaces: Iterable[str] = (), *, new: bool = False) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        table = _sorted(table)
        steps = pc.min_max(table["step"]).as_py()
        about = {"tenterhook": FORMAT, "first": steps["min"], "last": steps["max"], "replaces": list(replaces)}
        table = table.replace_schema_metadata({"tenterhook": json.dumps(about)})
        sink = pa.BufferOutputStream()
        pq.write_table(
            table, sink, compression="zstd", row_group_size=GROUP, write_page_checksum=True, version="2.6",
            use_dictionary=["hook", "target", "name", "rank"],
            column_encoding={"value": "BYTE_STREAM_SPLIT", "step": "DELTA_BINARY_PACKED"},
        )  # fmt: skip
        self.write(name, sink.getvalue().to_pybytes(), new=new)


class Part:
    """One file: which attempt at the run wrote it, for which rank, and the steps in it."""

    def __init__(self, folder: Folder, name: str) -> None:
        found = _PART.fullmatch(name)
        assert found is not None
        self.folder, self.name = folder, name
        self.attempt, self.rank, self.number = int(found[1]), int(found[2]), int(found[3])
        self.until = int(found[4] or found[3])
        try:
            about = json.loads(folder.metadata(name)[b"tenterhook"])
            self.first, self.last, self.replaces = int(about["first"]), int(about["last"]), list(about["replaces"])
        except FileNotFoundError:
            raise
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise StoreError(f"the part {name} cannot be read: {error}", remedy="move it out of the folder") from error

    @staticmethod
    def called(attempt: int, rank: int, number: int, until: int | None = None) -> str:
        tail = "" if until is None else f"-{until:06}"
        return f"part-{attempt:04}-{rank}-{number:06}{tail}.parquet"


def limits(parts: Iterable[Part]) -> dict[str, int | None]:
    """Of each part, the step from which on a later attempt took its rows' place; None if none did."""
    parts = list(parts)
    first: dict[tuple[int, int], int] = {}
    for part in parts:
        key = (part.rank, part.attempt)
        first[key] = min(first.get(key, part.first), part.first)
    return {
        part.name: min((s for (rank, attempt), s in first.items() if rank == part.rank and attempt > part.attempt),
                       default=None)
        for part in parts
    }  # fmt: skip


def last_step(path: str | os.PathLike[str]) -> int:
    """That a run folder has something of; -1 if there is none."""
    return max((part.last for part in Folder(path).parts()), default=-1)


class Store:
    """Writes a run's rows; given the folder of an earlier run, goes on in it, and its steps take the others' place."""

    def __init__(self, path: str | os.PathLike[str], *, linger: float = 1.0) -> None:
        self._folder = Folder(path)
        self._folder.make()
        self._linger = linger
        names = [m for name in self._folder.names() if (m := _PART.fullmatch(name))]
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
        """Longer the longer the run is, so that a week of training leaves some thousand parts."""
        return self._linger * (1.0 + self._number / 128)

    def keep(self, name: str, text: str) -> None:
        """A file beside the parts: the plan, the ledger, findings."""
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
            table = _table(mine)
            self._ranks.add(rank)
            while len(table):
                self._number += 1
                try:
                    self._folder.write_part(Part.called(self._attempt, rank, self._number), table, new=True)
                except FileExistsError:  # another store writes into this folder, too
                    continue
                self._rows += len(table)
                break
        pa.default_memory_pool().release_unused()  # it would keep what the largest part needed

    def close(self) -> None:
        """Small parts become one, if that takes no time."""
        with self._lock:
            if self._number > 1 and self._rows <= MERGED and os.getpid() == self._process:
                merge(self._folder, self._attempt, self._ranks)

    def _supersede(self, rank: int, step: int) -> None:
        """Take the steps that are about to be repeated out of what earlier attempts wrote."""
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


def merge(folder: Folder, attempt: int | None = None, ranks: Iterable[int] | None = None) -> None:
    """Make one part of many: it says which it replaces, so that at no moment a row is there twice or not at all."""
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
            name = Part.called(number, rank, min(p.number for p in parts), max(p.until for p in parts))
            folder.write_part(name, table, replaces=old)
            for name in old:
                folder.delete(name)


def _sorted(table: pa.Table) -> pa.Table:
    """Words are sorted by the place they have in their dictionary when that is sorted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = {}
    for name in ORDER:
        column = table[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            place = pc.cast(pc.rank(column.dictionary, tiebreaker="dense"), pa.int64())
            column = place.take(column.indices)
        keys[name] = column
    return table.take(pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in ORDER]))


def _table(batches: Iterable[Batch]) -> pa.Table:
    """Made of the tensors as they lie: a writer that takes rows one by one would hold up the training's thread."""
    import pyarrow as pa

    alike: dict[tuple[Any, ...], list[tuple[Batch, Table]]] = {}
    for batch in batches:
        for hook, table in batch.tables.items():
            key = (hook, batch.rank, id(table.targets), tuple(table.read()[0].items()))
            alike.setdefault(key, []).append((batch, table))
    parts = [_of_tables(hook, rank, found) for (hook, rank, *_), found in alike.items()]
    rows = [[r.step, r.rank, r.hook, r.target, r.name, r.value, None, r.call, r.leaf]
            for batch in batches for r in batch.emitted]  # fmt: skip
    rows += [[b.step, b.rank, "tenterhook", "recorder", "dropped", float(b.dropped), None, None, None]
             for b in batches if b.dropped]  # fmt: skip
    if rows:
        parts.append(pa.table(list(map(list, zip(*rows, strict=True))), schema=schema()))
    return pa.concat_tables([schema().empty_table(), *parts]).unify_dictionaries()


def _of_tables(hook: str, rank: int, found: Sequence[tuple[Batch, Table]]) -> pa.Table:
    """Of several steps: the same targets and names in all of them."""
    import pyarrow as pa

    widths, _ = found[0][1].read()
    targets = found[0][1].targets
    fired = [torch.tensor(table.fired, dtype=torch.long) for _, table in found]
    numbers = torch.cat([table.read()[1][slots] for (_, table), slots in zip(found, fired, strict=True)])
    steps = torch.tensor([batch.step for batch, _ in found]).repeat_interleave(torch.tensor([len(f) for f in fired]))
    places, at = {}, 0
    for name, width in widths.items():
        places[name] = (at, width)
        at += width or 1
    single = [name for name, width in widths.items() if not width]
    many = [name for name, width in widths.items() if width]
    names = [*single, *many]
    sites, rows = len(numbers), len(numbers) * len(names)

    def words(texts: Sequence[str], index: Tensor) -> pa.Array:
        return pa.DictionaryArray.from_arrays(_array(index.to(torch.int32), pa.int32()), pa.array(texts, pa.string()))

    values = numbers[:, [places[name][0] for name in single]].T.reshape(-1)
    lists = [numbers[:, at : at + width] for at, width in (places[name] for name in many)]
    counts = torch.cat([torch.zeros(len(single) * sites + 1, dtype=torch.int32),
                        *(torch.full((sites,), one.shape[1], dtype=torch.int32) for one in lists)])  # fmt: skip
    listed = pa.ListArray.from_arrays(
        _array(counts.cumsum(0).to(torch.int32), pa.int32()),
        _array(torch.cat([torch.zeros(0, dtype=torch.float64), *(one.reshape(-1) for one in lists)]), pa.float64()),
        mask=pa.array([True] * (len(single) * sites) + [False] * (len(many) * sites)),
    )
    return pa.table(
        [
            _array(steps.repeat(len(names)), pa.int64()),
            pa.repeat(pa.scalar(rank, pa.int32()), rows),
            words([hook], torch.zeros(rows)),
            words(targets, torch.cat(fired).repeat(len(names))),
            words(names, torch.arange(len(names)).repeat_interleave(sites)),
            pa.concat_arrays([_array(values, pa.float64()), pa.nulls(len(many) * sites, pa.float64())]),
            listed,
            pa.nulls(rows, pa.int32()),
            pa.nulls(rows, pa.int32()),
        ],
        schema=schema(),
    )


def _array(tensor: Tensor, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    tensor = tensor.contiguous()
    memory = pa.foreign_buffer(tensor.data_ptr(), tensor.numel() * tensor.element_size(), base=tensor)
    return pa.Array.from_buffers(kind, tensor.numel(), [None, memory])
