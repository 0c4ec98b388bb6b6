"""Decode structures in the compact protocol of Thrift, in which Parquet files describe themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

#: types of the protocol; the type of a list is 16 * LIST plus the type of its items
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, TEXT, LIST = range(1, 10)
STRUCT = 12
LIST_OF_I32, LIST_OF_I64, LIST_OF_TEXT, LIST_OF_STRUCT = (16 * LIST + item for item in (I32, I64, TEXT, STRUCT))
#: the type of a field that must not be there
REFUSED = 0
#: limits of the items in a list, and of structures inside each other
MOST_ITEMS, MOST_DEPTH = 64, 16

Struct = dict[int, Any]


class Field(NamedTuple):
    """Describes a known field: its type, and the known fields of the structures in it.

    A list may be long if `convert` is given, which replaces each structure in the list as soon as it is read.
    """

    kind: int
    known: Mapping[int, Field] = MappingProxyType({})
    convert: Callable[[Struct], Any] | None = None


def decode(data: bytes, known: Mapping[int, Field]) -> Struct:
    """Return the values of the known fields of the structure with which some bytes begin.

    Unknown fields are skipped. Raise a ValueError for each known field that has another type or is there twice, because
    other readers ignore such a field, or do not read it as its type says. Raise an IndexError if the bytes end early.
    """
    return _struct(data, 0, known, 0)[0]


def _struct(data: bytes, at: int, known: Mapping[int, Field], depth: int) -> tuple[Struct, int]:
    """Return a structure, and the position after it."""
    if depth > MOST_DEPTH:
        raise ValueError("it has too many structures inside each other")
    made: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        if head > 15:
            number += head >> 4
        else:
            number, at = _value(data, at, I16, _UNKNOWN, depth)
        kind = head & 15
        if kind == LIST:
            kind = 16 * LIST + (data[at] & 15)
        field = known.get(number)
        if field is None:
            at = _value(data, at, kind, _UNKNOWN, depth)[1]
        elif (TRUE if kind == FALSE else kind) != field.kind or number in made:
            raise ValueError(f"it has a field {number} of the type {kind}, which a store does not write")
        elif I16 <= kind <= I64 and (byte := data[at]) < 128:  # most values are short, so these are read here
            at += 1
            made[number] = (byte >> 1) ^ -(byte & 1)
        else:
            made[number], at = _value(data, at, kind, field, depth)
    return made, at + 1


def _value(data: bytes, at: int, kind: int, field: Field, depth: int) -> tuple[Any, int]:
    """Return a value, and the position after it."""
    if I16 <= kind <= I64:
        value, at = _varint(data, at)
        return (value >> 1) ^ -(value & 1), at
    if kind == TEXT:
        size, at = _varint(data, at)
        if at + size > len(data):
            raise IndexError
        return data[at : at + size], at + size
    if kind == STRUCT:
        return _struct(data, at, field.known, depth + 1)
    if kind > 16:
        return _list(data, at, field, depth)
    if kind in (TRUE, FALSE, BYTE, DOUBLE):
        return kind == TRUE, at + {BYTE: 1, DOUBLE: 8}.get(kind, 0)
    raise ValueError(f"it has a value of the type {kind}")


def _list(data: bytes, at: int, field: Field, depth: int) -> tuple[list[Any], int]:
    count, item = data[at] >> 4, data[at] & 15
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    if count > MOST_ITEMS and field.convert is None:
        raise ValueError(f"it has a list of {count:,} items")
    if item in (TRUE, FALSE):
        item = BYTE
    made = []
    for _ in range(count):
        value, at = _value(data, at, item, field, depth + 1)
        made.append(value if field.convert is None else field.convert(value))
    return made, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ValueError("it has a number that is too long")
    return value | byte << shift, at + 1


_UNKNOWN = Field(REFUSED)
