"""Open the parts of a run, after checking that their sizes, schema and counts are those that a store writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from tenterhook.errors import StoreError
from tenterhook.record.arrow_tables import schema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FORMAT = 1
#: attempt, rank and number; a merged part's name contains the first and last numbers of the parts that it replaces
PART_NAME = re.compile(r"part-(\d{4,9})-(\d{1,9})-(\d{6,12})(?:-(\d{6,12}))?\.parquet", re.ASCII)
#: rows in a row group; reading one curve loads whole row groups
GROUP_ROWS = 2**17
#: numbers in the lists of a row group
GROUP_NUMBERS = 2**21
#: the columns as Parquet stores them: path, physical type, logical type
_COLUMNS = [
    ("step", "INT64", "None"),
    ("rank", "INT32", "None"),
    ("hook", "BYTE_ARRAY", "String"),
    ("target", "BYTE_ARRAY", "String"),
    ("name", "BYTE_ARRAY", "String"),
    ("value", "DOUBLE", "None"),
    ("values.list.element", "DOUBLE", "None"),
    ("call", "INT32", "None"),
    ("leaf", "INT32", "None"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """The largest run folder that is read. A folder that exceeds a limit is refused before its rows are read.

    Args:
        files: Number of files in the folder.
        text_bytes: Size of a JSON file.
        part_bytes: Size of a part.
        footer_bytes: Size of the description at the end of a part.
        group_bytes: Size of a column in a row group, when it is not compressed.
        rows: Number of rows in a part, or `rows_per_byte` times the size of the part, whichever is larger.
        rows_per_byte: Number of rows for each byte of the part.
        series: Number of different combinations of hook, target and name that a report shows.

    Example:
        >>> import tenterhook as th
        >>> th.ReadLimits(rows=10**9).rows
        1000000000
    """

    files: int = 2**17
    text_bytes: int = 2**24
    part_bytes: int = 2**33
    footer_bytes: int = 2**22
    group_bytes: int = 2**26
    rows: int = 2**22
    rows_per_byte: int = 8
    series: int = 2**19


DEFAULT_LIMITS = ReadLimits()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run, with its attempt number, the rank that wrote it, and its first and last steps."""

    name: str
    attempt: int
    rank: int
    number: int
    last_number: int
    first: int
    last: int
    replaces: tuple[str, ...]
    rows: int

    @staticmethod
    def file_name(attempt: int, rank: int, number: int, last_number: int | None = None) -> str:
        tail = "" if last_number is None else f"-{last_number:06}"
        return f"part-{attempt:04}-{rank}-{number:06}{tail}.parquet"


def describe(steps: dict[str, int], replaces: Iterable[str]) -> dict[str, str]:
    """Return the metadata of a part: the format, the first and last steps, and the parts that it replaces."""
    about = {"tenterhook": FORMAT, "first": steps["min"], "last": steps["max"], "replaces": list(replaces)}
    return {"tenterhook": json.dumps(about)}


def read_part(name: str, file: BinaryIO, size: int, limits: ReadLimits) -> Part:
    """Check a part and return its description. Raise a StoreError if a store did not write it."""
    found = PART_NAME.fullmatch(name)
    assert found is not None
    attempt, rank, number = int(found[1]), int(found[2]), int(found[3])
    with _typed(name):
        metadata = _opened(name, file, size, limits).metadata
        about = json.loads((metadata.metadata or {}).get(b"tenterhook", b"null").decode())
        if not isinstance(about, dict) or type(about.get("tenterhook")) is not int:
            raise ValueError("it has no description by a store")
        if about["tenterhook"] > FORMAT:
            raise ValueError(f"its format is {about['tenterhook']}; this version reads format {FORMAT}")
        rows, first, last, replaces = metadata.num_rows, about.get("first"), about.get("last"), about.get("replaces")
        if rows == 0 and first is None and last is None:
            first = last = 0
        if type(first) is not int or type(last) is not int or not -(2**63) <= first <= last < 2**63:
            raise ValueError("its description has no first and last step")
        if not isinstance(replaces, list) or not all(isinstance(one, str) for one in replaces):
            raise ValueError("its description does not list the parts that it replaces")
    return Part(name, attempt, rank, number, int(found[4] or found[3]), first, last, tuple(replaces), rows)


def read_table(name: str, file: BinaryIO, size: int, limits: ReadLimits) -> pa.Table:
    """Return the rows of a part with the columns that a store writes, and verify its checksums."""
    with _typed(name):
        columns = schema()
        table: pa.Table = _opened(name, file, size, limits).read().select(columns.names).cast(columns)
        return table


def count_rows(name: str, file: BinaryIO, size: int, limits: ReadLimits) -> int:
    """Read the rows of a part one row group at a time, verify the checksums, and return the number of rows."""
    with _typed(name):
        part = _opened(name, file, size, limits)
        return sum(len(part.read_row_group(number)) for number in range(part.num_row_groups))


def _opened(name: str, file: BinaryIO, size: int, limits: ReadLimits) -> pq.ParquetFile:
    """Open a part, and compare its footer with the limits before any row is read."""
    import pyarrow.parquet as pq

    if size > limits.part_bytes:
        raise _exceeds(name, f"has {size:,} bytes", "part_bytes", limits.part_bytes)
    file.seek(max(0, size - 8))
    end = file.read(8)
    if len(end) < 8 or end[4:] != b"PAR1":
        raise ValueError("it does not end as a Parquet file does")
    footer = int.from_bytes(end[:4], "little")
    if footer > min(limits.footer_bytes, size - 8):
        raise _exceeds(name, f"has a footer of {footer:,} bytes", "footer_bytes", min(limits.footer_bytes, size - 8))
    file.seek(0)
    part = pq.ParquetFile(file, page_checksum_verification=True, arrow_extensions_enabled=False)
    _check_columns(part.metadata)
    _check_counts(name, part.metadata, size, limits)
    return part


def _check_columns(metadata: Any) -> None:
    columns = [metadata.schema.column(place) for place in range(min(len(metadata.schema), 16))]
    if [(c.path, c.physical_type, str(c.logical_type)) for c in columns] != _COLUMNS:
        raise ValueError(f"its columns are not those of a run: {', '.join(c.path[:40] for c in columns)}")


def _check_counts(name: str, metadata: Any, size: int, limits: ReadLimits) -> None:
    rows, most = metadata.num_rows, max(limits.rows, limits.rows_per_byte * size)
    if not 0 <= rows <= most:
        raise _exceeds(name, f"has {rows:,} rows", "rows", most)
    counted = 0
    for place in range(metadata.num_row_groups):
        group = metadata.row_group(place)
        counted += group.num_rows
        if not 0 <= group.num_rows <= 8 * GROUP_ROWS:
            raise ValueError(f"a row group has {group.num_rows:,} rows")
        for column in range(group.num_columns):
            chunk = group.column(column)
            large = max(chunk.total_uncompressed_size, chunk.total_compressed_size, 8 * chunk.num_values)
            if large > limits.group_bytes or min(chunk.total_uncompressed_size, chunk.num_values) < 0:
                raise _exceeds(name, f"has a column of {large:,} bytes", "group_bytes", limits.group_bytes)
    if counted != rows:
        raise ValueError(f"its row groups have {counted:,} rows, but its description has {rows:,}")


def _exceeds(name: str, what: str, limit: str, most: int) -> StoreError:
    return StoreError(
        f"the part {name} {what}; the limit is {most:,}",
        remedy=f"if you trust the folder, pass limits=th.ReadLimits({limit}=...) to th.open_run",
    )


@contextmanager
def _typed(name: str) -> Iterator[None]:
    """Raise a StoreError for any error of a reader. A missing file is not one: another process merges parts."""
    try:
        yield
    except (StoreError, FileNotFoundError):
        raise
    except Exception as error:  # Arrow raises errors of many types for damaged files
        raise StoreError(
            f"the part {name} cannot be read: {_brief(error)}", remedy="restore the file, or move it out of the folder"
        ) from error


def _brief(error: Exception) -> str:
    text = str(error).split("\n")[0][:200]
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


def superseded_from(parts: Iterable[Part]) -> dict[str, int | None]:
    """Map each part's name to the earliest step that later attempts of the same rank recorded, or to None."""
    parts = list(parts)
    first: dict[tuple[int, int], int] = {}
    for part in parts:
        key = (part.rank, part.attempt)
        first[key] = min(first.get(key, part.first), part.first)
    earliest: dict[tuple[int, int], int | None] = {}
    by_rank: dict[int, int | None] = {}
    for rank, attempt in sorted(first, reverse=True):
        earliest[rank, attempt] = by_rank.get(rank)
        later = by_rank.get(rank)
        by_rank[rank] = first[rank, attempt] if later is None else min(later, first[rank, attempt])
    return {part.name: earliest[part.rank, part.attempt] for part in parts}
