"""Forge Parquet files whose footers and page headers contain lies that no library would write.

A footer and a page header are structures in the compact protocol of Thrift. This module decodes them into plain lists,
lets a caller change any number in them, and encodes them again.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: types of the compact protocol
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
INTEGERS = frozenset((I16, I32, I64))


@dataclass
class Struct:
    """A structure, which has a list of fields: their numbers, types and values."""

    fields: list[tuple[int, int, Any]] = field(default_factory=list)

    def get(self, number: int) -> Any:
        """Return the value of a field."""
        return next(value for found, _, value in self.fields if found == number)

    def set(self, number: int, value: Any) -> None:
        """Replace the value of a field that exists."""
        self.fields = [(n, kind, value if n == number else old) for n, kind, old in self.fields]

    def drop(self, number: int) -> None:
        """Remove a field."""
        self.fields = [one for one in self.fields if one[0] != number]


class Decoder:
    """Decode structures. The attribute `at` is the position after the last one."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        """Return the next byte."""
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        """Return the next number without a sign."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def zigzag(self) -> int:
        """Return the next number with a sign."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def value(self, kind: int) -> Any:
        """Return the next value of a type."""
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self.byte()
        if kind in INTEGERS:
            return self.zigzag()
        if kind in (DOUBLE, BINARY):
            size = 8 if kind == DOUBLE else self.varint()
            self.at += size
            return self.data[self.at - size : self.at]
        if kind in (LIST, SET):
            head = self.byte()
            count, inner = head >> 4, head & 15
            count = self.varint() if count == 15 else count
            return inner, [self.byte() if inner in (TRUE, FALSE) else self.value(inner) for _ in range(count)]
        if kind == STRUCT:
            return self.struct()
        raise ValueError(f"the type {kind} is not expected")

    def struct(self) -> Struct:
        """Return the next structure."""
        made, number = Struct(), 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            made.fields.append((number, head & 15, self.value(head & 15)))
        return made


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def encode(kind: int, value: Any) -> bytes:
    """Return the bytes of a value."""
    if kind in (TRUE, FALSE):
        return b""
    if kind == BYTE:
        return bytes([value])
    if kind in INTEGERS:
        return _varint((value << 1 ^ value >> 63) & (2**64 - 1))
    if kind == DOUBLE:
        return bytes(value)
    if kind == BINARY:
        return _varint(len(value)) + value
    if kind in (LIST, SET):
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _varint(len(items))
        return head + b"".join(bytes([one]) if inner in (TRUE, FALSE) else encode(inner, one) for one in items)
    made, before = bytearray(), 0
    for number, sort, one in value.fields:
        sort = (TRUE if one else FALSE) if sort in (TRUE, FALSE) else sort
        near = 0 < number - before < 16
        made += bytes([(number - before) << 4 | sort]) if near else bytes([sort]) + encode(I16, number)
        made += encode(sort, one)
        before = number
    return bytes(made) + b"\0"


def integers(value: Any, path: str = "") -> Iterator[tuple[str, Struct, int]]:
    """Yield every integer field inside a structure: its path, the structure that has it, and its number."""
    if isinstance(value, Struct):
        for number, kind, one in value.fields:
            here = f"{path}.{number}" if path else str(number)
            if kind in INTEGERS:
                yield here, value, number
            elif kind == STRUCT:
                yield from integers(one, here)
            elif kind == LIST and one[0] == STRUCT:
                for place, item in enumerate(one[1]):
                    yield from integers(item, f"{here}[{place}]")


def footer(data: bytes) -> Struct:
    """Return the footer of a Parquet file."""
    size = int.from_bytes(data[-8:-4], "little")
    return Decoder(data, len(data) - 8 - size).struct()


def with_footer(data: bytes, new: Struct | bytes) -> bytes:
    """Return a Parquet file with another footer."""
    size = int.from_bytes(data[-8:-4], "little")
    text = new if isinstance(new, bytes) else encode(STRUCT, new)
    return data[: len(data) - 8 - size] + text + len(text).to_bytes(4, "little") + b"PAR1"


def lying_footer(data: bytes, path: str, value: int) -> bytes:
    """Return a Parquet file in whose footer one integer is another."""
    made = footer(data)
    where, number = next((struct, number) for here, struct, number in integers(made) if here == path)
    where.set(number, value)
    return with_footer(data, made)


def first_pages(data: bytes) -> dict[str, int]:
    """Return the position of the first page of each column in the first row group."""
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column
    found = (column(place) for place in range(9))
    return {c.path_in_schema: c.dictionary_page_offset or c.data_page_offset for c in found}


def lying_page(data: bytes, at: int, path: str, value: int) -> bytes:
    """Return a Parquet file in which one integer of a page header is another.

    A longer header overwrites the beginning of the page, because the positions of the other pages must not change.
    """
    reader = Decoder(data, at)
    header = reader.struct()
    where, number = next((struct, number) for here, struct, number in integers(header) if here == path)
    where.set(number, value)
    header.drop(4)  # the checksum, so that the lie is not found too early
    gap = reader.at - at - len(encode(STRUCT, header))
    if gap >= 4:  # an unknown field fills the gap
        header.fields.append((30, BINARY, b"\0" * (gap - 3)))
    text = encode(STRUCT, header)
    return data[:at] + text + data[at + len(text) :]


def without_arrow_schema(data: bytes) -> bytes:
    """Return a Parquet file as another writer than Arrow would describe it."""
    made = footer(data)
    kind, pairs = made.get(5)
    made.set(5, (kind, [pair for pair in pairs if pair.get(1) != b"ARROW:schema"]))
    return with_footer(data, made)


def page_fields(data: bytes, at: int) -> list[str]:
    """Return the paths of the integers in a page header."""
    return [path for path, _, _ in integers(Decoder(data, at).struct())]


def repeated_groups(data: bytes, times: int) -> bytes:
    """Return a Parquet file whose footer lists its row groups many times, all at the same position in the file."""
    made = footer(data)
    kind, groups = made.get(4)
    made.set(4, (kind, groups * times))
    made.set(3, made.get(3) * times)
    return with_footer(data, made)


def written(table: pa.Table, *, arrow_schema: bool = True, **options: Any) -> bytes:
    """Return a table as Parquet, as pyarrow writes it."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"compression": "zstd", "write_page_checksum": True, "version": "2.6", **options})
    return sink.getvalue() if arrow_schema else without_arrow_schema(sink.getvalue())
