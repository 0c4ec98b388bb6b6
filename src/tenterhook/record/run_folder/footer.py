"""Read the footer of a part without Arrow, and refuse a footer that a store does not write.

Arrow ends the whole process for some wrong footers, so Arrow and DuckDB open only parts whose footers were read here.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift lists the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from tenterhook.record.run_folder.thrift import (
    I16,
    I32,
    I64,
    LIST_OF_I32,
    LIST_OF_I64,
    LIST_OF_STRUCT,
    LIST_OF_TEXT,
    REFUSED,
    STRUCT,
    TEXT,
    TRUE,
    Field,
    Struct,
    decode,
)


def _fields(kinds: dict[int, int], **inner: dict[int, Field]) -> dict[int, Field]:
    """Return the fields of a structure. An argument such as `f3` gives the fields of the structures in field 3."""
    return {number: Field(kind, inner.get(f"f{number}", {})) for number, kind in kinds.items()}


# A field is REFUSED if it makes a reader open another file, decrypt a column, or read a filter at any position.
_LOGICAL = _fields({1: STRUCT, 3: STRUCT})
_ELEMENT = _fields({1: I32, 2: I32, 3: I32, 4: TEXT, 5: I32, 6: I32, 7: I32, 8: I32, 9: I32, 10: STRUCT}, f10=_LOGICAL)
_STATISTICS = _fields({1: TEXT, 2: TEXT, 3: I64, 4: I64, 5: TEXT, 6: TEXT, 7: TRUE, 8: TRUE})
_LEVELS = _fields({1: I64, 2: LIST_OF_I64, 3: LIST_OF_I64})
_COLUMN = _fields(
    {1: I32, 2: LIST_OF_I32, 3: LIST_OF_TEXT, 4: I32, 5: I64, 6: I64, 7: I64, 8: REFUSED, 9: I64, 10: I64, 11: I64,
     12: STRUCT, 13: LIST_OF_STRUCT, 14: REFUSED, 15: REFUSED, 16: STRUCT},
    f12=_STATISTICS, f16=_LEVELS,
)  # fmt: skip
_CHUNK = _fields({1: REFUSED, 2: I64, 3: STRUCT, 4: I64, 5: I32, 6: I64, 7: I32, 8: REFUSED, 9: REFUSED}, f3=_COLUMN)
_GROUP = _fields({1: LIST_OF_STRUCT, 2: I64, 3: I64, 4: LIST_OF_STRUCT, 5: I64, 6: I64, 7: I16}, f1=_CHUNK)
_FILE = _fields(
    {1: I32, 2: LIST_OF_STRUCT, 3: I64, 5: LIST_OF_STRUCT, 6: TEXT, 7: LIST_OF_STRUCT, 8: REFUSED, 9: REFUSED},
    f2=_ELEMENT, f5=_fields({1: TEXT, 2: TEXT}),
)  # fmt: skip


class _Column(NamedTuple):
    """Describes a column: its physical type, the bytes of a value, and the largest levels of repetition and nulls."""

    path: list[bytes]
    physical: int
    width: int | None
    repetition: int = 0
    definition: int = 1


_COLUMNS = [
    _Column([b"step"], 2, 8),
    _Column([b"rank"], 1, 4),
    _Column([b"hook"], 6, None),
    _Column([b"target"], 6, None),
    _Column([b"name"], 6, None),
    _Column([b"value"], 5, 8),
    _Column([b"values", b"list", b"element"], 5, 8, 1, 3),
    _Column([b"call"], 1, 4),
    _Column([b"leaf"], 1, 4),
]


def _elements() -> Iterator[Struct]:
    """Yield the elements of the schema after the first one."""
    for column in _COLUMNS:
        if column.repetition:
            yield {3: 1, 4: column.path[0], 5: 1, 6: 3, 10: {3: {}}}
            yield {3: 2, 4: column.path[1], 5: 1}
        text = {6: 0, 10: {1: {}}} if column.width is None else {}
        yield {1: column.physical, 3: 1, 4: column.path[-1], **text}


_ELEMENTS = list(_elements())
_LISTS = 6
_PATHS = [(column.physical, column.path) for column in _COLUMNS]


class Group(NamedTuple):
    """The number of rows in a row group, the number of numbers in its lists, and the size of its largest column."""

    rows: int
    numbers: int
    largest: int


class Footer(NamedTuple):
    """The number of rows in a part, its row groups, and its texts by their keys."""

    rows: int
    groups: list[Group]
    texts: dict[bytes, bytes]


@lru_cache(maxsize=8)  # a footer of thousands of row groups takes seconds, and is needed several times
def read_footer(data: bytes, end: int) -> Footer:
    """Read a footer, which begins at the position `end` of a part. Raise a ValueError if a store does not write it."""
    known = {**_FILE, 4: Field(LIST_OF_STRUCT, _GROUP, lambda group: _group(group, end))}
    try:
        found = decode(data, known)
    except IndexError:
        raise ValueError("its footer is cut off") from None
    root, *elements = found.get(2) or [{}]
    if root.get(5) != len(_COLUMNS) or root.get(3, 0) or elements != _ELEMENTS:
        raise _other_columns(element.get(4, b"") for element in elements)
    groups: list[Group] = found.get(4, [])
    rows, counted = found.get(3, -1), sum(group.rows for group in groups)
    if counted != rows:
        raise ValueError(f"its row groups have {counted:,} rows, but its footer has {rows:,}")
    return Footer(rows, groups, {pair.get(1, b""): pair.get(2, b"") for pair in found.get(5, [])})


def _other_columns(names: Iterable[bytes]) -> ValueError:
    words = ", ".join(name.decode(errors="replace")[:40] for name in names)
    return ValueError(f"its columns are not those of a run: {words}")


def _group(group: Struct, end: int) -> Group:
    """Check a row group, and return its sizes."""
    rows, columns = group.get(3, -1), [chunk.get(3, {}) for chunk in group.get(1, [])]
    if [(column.get(1), column.get(3)) for column in columns] != _PATHS:
        raise _other_columns(b".".join(column.get(3, [])) for column in columns)
    if rows < 0:
        raise ValueError(f"a row group has {rows:,} rows")
    sizes = (_size(found, column, rows, end) for found, column in zip(columns, _COLUMNS, strict=True))
    return Group(rows, columns[_LISTS].get(5, 0) - rows, max(sizes))


def _size(found: Struct, column: _Column, rows: int, end: int) -> int:
    """Check a column of a row group, and return its size in bytes."""
    name = column.path[0].decode()
    values, full, packed = (int(found.get(field, -1)) for field in (5, 6, 7))
    first = min(found.get(9, -1), found.get(11, end))  # a dictionary is before the values
    if values < rows or (values > rows and not column.repetition) or min(full, packed) < 0:
        raise ValueError(f"the column {name} of a row group has {values:,} values in {full:,} bytes for {rows:,} rows")
    if rows and (first < 4 or first + packed > end):
        raise ValueError(f"the column {name} of a row group is not inside the part")
    limits = [found.get(12, {}).get(field) for field in (1, 2, 5, 6)]
    if column.width is not None and any(one is not None and len(one) != column.width for one in limits):
        raise ValueError(f"the smallest and largest values of the column {name} have a wrong size")
    for field, level in ((2, column.repetition), (3, column.definition)):
        if len(found.get(16, {}).get(field, [])) not in (0, level + 1):
            raise ValueError(f"the column {name} counts the values of a wrong number of levels")
    return max(full, packed, 8 * values)
