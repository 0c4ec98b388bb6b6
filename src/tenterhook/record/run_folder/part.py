"""Open the parts of a run, after checking that their sizes, schema and counts are those that a store writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from tenterhook.errors import StoreError
from tenterhook.record.run_folder.columns import schema
from tenterhook.record.run_folder.footer import Footer, read_footer
from tenterhook.record.run_folder.pyramid import KEY

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
#: size of a column at which no more row groups are read together; reading each small one alone would be slow
COLUMN_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """The largest run folder that is read. A folder that exceeds a limit is refused before its rows are read.

    Args:
        files: Number of files in the folder.
        text_bytes: Size of a JSON file.
        text_values: Number of values in a JSON file.
        part_bytes: Size of a part.
        footer_bytes: Size of the description at the end of a part.
        group_bytes: Size of a column in a row group, when it is not compressed.
        rows: Number of rows in a part, or `rows_per_byte` times the size of the part, whichever is larger.
        rows_per_byte: Number of rows for each byte of the part.
        numbers: Number of numbers in the lists of a part, or 16 times the size of the part, whichever is larger.
        table_bytes: Size of the different names in a table, a DataFrame or a report. The names in all rows may have
            256 bytes per row, and the lists 4096 bytes per row, if this is larger.
        series: Number of different combinations of hook, target and name that a report shows.

    Example:
        >>> import tenterhook as th
        >>> th.ReadLimits(rows=10**9).rows
        1000000000
    """

    files: int = 2**17
    text_bytes: int = 2**24
    text_values: int = 2**19
    part_bytes: int = 2**33
    footer_bytes: int = 2**22
    group_bytes: int = 2**25
    rows: int = 2**22
    rows_per_byte: int = 2
    numbers: int = 2**24
    table_bytes: int = 2**25
    series: int = 300_000


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
    #: the summary of the rows, which `read_pyramid` decodes, or nothing
    pyramid: bytes = b""

    @staticmethod
    def file_name(attempt: int, rank: int, number: int, last_number: int | None = None) -> str:
        tail = "" if last_number is None else f"-{last_number:06}"
        return f"part-{attempt:04}-{rank}-{number:06}{tail}.parquet"


def describe(steps: tuple[int, int], replaces: Iterable[str]) -> dict[str, str]:
    """Return the metadata of a part: the format, the first and last steps, and the parts that it replaces."""
    about = {"tenterhook": FORMAT, "first": steps[0], "last": steps[1], "replaces": list(replaces)}
    return {"tenterhook": json.dumps(about)}


def read_part(name: str, file: BinaryIO, size: int, limits: ReadLimits) -> Part:
    """Check a part and return its description. Raise a StoreError if a store did not write it."""
    found = PART_NAME.fullmatch(name)
    assert found is not None
    attempt, rank, number = int(found[1]), int(found[2]), int(found[3])
    with _typed(name):
        footer = _checked(name, file, size, limits)
        about = json.loads(footer.texts.get(b"tenterhook", b"null").decode())
        if not isinstance(about, dict) or type(about.get("tenterhook")) is not int:
            raise ValueError("it has no description by a store")
        if about["tenterhook"] > FORMAT:
            raise ValueError(f"its format is {about['tenterhook']}; this version reads format {FORMAT}")
        rows, first, last, replaces = footer.rows, about.get("first"), about.get("last"), about.get("replaces")
        if rows == 0 and first is None and last is None:
            first = last = 0
        if type(first) is not int or type(last) is not int or not -(2**63) <= first <= last < 2**63:
            raise ValueError("its description has no first and last step")
        if not isinstance(replaces, list) or not all(isinstance(one, str) for one in replaces):
            raise ValueError("its description does not list the parts that it replaces")
    return Part(
        name,
        attempt,
        rank,
        number,
        int(found[4] or found[3]),
        first,
        last,
        tuple(replaces),
        rows,
        footer.texts.get(KEY.encode(), b""),
    )


def read_groups(
    name: str, file: BinaryIO, size: int, limits: ReadLimits, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a part with the columns that a store writes, or some of them, and verify their checksums.

    A table has the rows of one row group, or of several small ones.
    """
    kinds = schema() if columns is None else _some(columns)
    yield kinds.empty_table()
    with _typed(name):
        for table in _tables(name, file, size, limits, kinds.names):
            yield table.select(kinds.names).cast(kinds)


def _some(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of some columns of a part."""
    import pyarrow as pa

    every = schema()
    return pa.schema([every.field(column) for column in columns])


def count_rows(name: str, file: BinaryIO, size: int, limits: ReadLimits) -> int:
    """Read the rows of a part, verify their checksums, and return the number of rows."""
    with _typed(name):
        return sum(map(len, _tables(name, file, size, limits)))


def _tables(
    name: str, file: BinaryIO, size: int, limits: ReadLimits, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a part as they are stored."""
    groups = _checked(name, file, size, limits).groups
    part = _opened(file)
    waiting: list[int] = []
    large = 0
    for number, group in enumerate(groups):
        waiting.append(number)
        large += group.largest
        if number + 1 == len(groups) or large > COLUMN_BYTES:
            yield part.read_row_groups(waiting, columns)
            waiting, large = [], 0


def _opened(file: BinaryIO) -> pq.ParquetFile:
    """Open a part whose footer was checked."""
    import pyarrow.parquet as pq

    file.seek(0)
    # A dictionary stores each word once, even if the part repeats a long word in every row.
    words = ["hook", "target", "name"]
    return pq.ParquetFile(file, read_dictionary=words, page_checksum_verification=True, arrow_extensions_enabled=False)


def _checked(name: str, file: BinaryIO, size: int, limits: ReadLimits) -> Footer:
    """Read the footer of a part, and compare it with the limits before any row is read."""
    if size > limits.part_bytes:
        raise _exceeds(name, f"has {size:,} bytes", "part_bytes", limits.part_bytes)
    file.seek(max(0, size - 8))
    end = file.read(8)
    if len(end) < 8 or end[4:] != b"PAR1":
        raise ValueError("it does not end as a Parquet file does")
    length = int.from_bytes(end[:4], "little")
    if length > min(limits.footer_bytes, size - 8):
        raise _exceeds(name, f"has a footer of {length:,} bytes", "footer_bytes", min(limits.footer_bytes, size - 8))
    file.seek(size - 8 - length)
    footer = read_footer(file.read(length), size - 8 - length)
    most = max(limits.rows, limits.rows_per_byte * size)
    if footer.rows > most:
        raise _exceeds(name, f"has {footer.rows:,} rows", "rows", most)
    numbers, most = sum(group.numbers for group in footer.groups), max(limits.numbers, 16 * size)
    if numbers > most:
        raise _exceeds(name, f"has {numbers:,} numbers in lists", "numbers", most)
    for group in footer.groups:
        if group.rows > 8 * GROUP_ROWS:
            raise ValueError(f"a row group has {group.rows:,} rows")
        if group.largest > limits.group_bytes:
            raise _exceeds(name, f"has a column of {group.largest:,} bytes", "group_bytes", limits.group_bytes)
    return footer


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
