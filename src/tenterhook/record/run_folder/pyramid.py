"""Summarize the numbers of a part by blocks of the model and ranges of steps, so that a viewer need not read its rows.

The summary is in the metadata of the part, so it is always written, merged and deleted with the rows.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

#: key of the summary in the metadata of a part
KEY = "pyramid"
#: maximum number of ranges of steps in a part
MAX_BUCKETS = 16
#: a part whose summary would be larger than this part of its rows has none, because its rows are read fast enough
SMALLEST = 1 / 8
#: size of a summary that is not compressed, and that is compressed
MAX_BYTES, MAX_TEXT = 2**25, 2**20
#: the end of the first part of a name that is a number
_BLOCK = re.compile(r"(?:^|[.:])[0-9]+(?=[.:])")
_CELL = 4
_KEYS = ["hook", "name", "block", "bucket"]
_MEASURED = ["value_min", "value_max", "value_sum", "value_count", "bad_max"]


class Pyramid(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The smallest, largest and mean value of each block in each range of steps, one cell after another.

    A range begins at a multiple of `width`. `high` is infinite if a value is not finite.
    """

    width: int
    series: list[tuple[str, str]]
    blocks: list[str]
    #: for each cell, the place of its series, the place of its block, and its first step divided by the width
    at_series: bytes
    at_block: bytes
    at_bucket: bytes
    low: bytes
    high: bytes
    mean: bytes
    count: bytes

    @property
    def cells(self) -> int:
        return len(self.at_series) // _CELL


@lru_cache(maxsize=2**17)
def block_of(target: str) -> str:
    """Return the block of a target: its name up to the first number in it, or its whole name."""
    found = _BLOCK.search(target[:1024])
    return target[: found.end()] if found else target


class PyramidBuilder:
    """Builds the summary of a part from tables of its rows.

    Args:
        steps: The first and the last step of the part.
    """

    def __init__(self, steps: tuple[int, int]) -> None:
        span = steps[1] - steps[0] + 1
        self._width = 1
        while span > self._width * MAX_BUCKETS:
            self._width *= 2
        self._rows = 0
        self._found: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        """Add some rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._rows += len(table)
        table = table.select(["step", "hook", "target", "name", "value"]).filter(pc.is_valid(table["value"]))
        if not len(table):
            return
        table = table.combine_chunks().unify_dictionaries()
        targets = table["target"].combine_chunks()
        blocks = pa.array(
            [block_of(str(name)) for name in targets.dictionary.to_pylist()], pa.string()
        ).dictionary_encode()
        block = pc.take(blocks.indices, targets.indices)
        finite = pc.is_finite(table["value"])
        bucket = pc.floor(pc.divide(pc.cast(table["step"], pa.float64(), safe=False), float(self._width)))
        summary = pa.table(
            {
                "hook": table["hook"].combine_chunks().dictionary_decode(),
                "name": table["name"].combine_chunks().dictionary_decode(),
                "block": block,
                "bucket": bucket,
                "value": pc.if_else(finite, table["value"], pa.scalar(None, pa.float64())),
                "bad": pc.invert(finite),
            }
        )
        measures = [("value", "min"), ("value", "max"), ("value", "sum"), ("value", "count"), ("bad", "max")]
        grouped = summary.group_by(_KEYS, use_threads=False).aggregate(measures)
        words = pc.take(blocks.dictionary, grouped["block"].combine_chunks())
        self._found.append(grouped.set_column(grouped.schema.get_field_index("block"), "block", words))

    def text(self) -> bytes | None:
        """Return the summary as text for the metadata, or None if it is not much smaller than the rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._found:
            return None
        table = pa.concat_tables(self._found)
        if len(self._found) > 1:
            again = [("value_min", "min"), ("value_max", "max"), ("value_sum", "sum"), ("value_count", "sum")]
            table = table.group_by(_KEYS, use_threads=False).aggregate([*again, ("bad_max", "max")])
            table = table.rename_columns([*_KEYS, *_MEASURED])
        if len(table) > SMALLEST * self._rows:
            return None
        series = pc.binary_join_element_wise(table["hook"], table["name"], "\0").combine_chunks().dictionary_encode()
        blocks = table["block"].combine_chunks().dictionary_encode()
        high = pc.if_else(table["bad_max"], pa.scalar(float("inf")), table["value_max"])
        mean = pc.divide(table["value_sum"], pc.cast(table["value_count"], pa.float64()))
        first = pc.min(table["bucket"]).as_py()

        def packed(column: Any, kind: pa.DataType) -> bytes:
            some = pc.fill_null(pc.cast(column, kind, safe=False), pa.scalar(0, kind))
            array = some.combine_chunks() if isinstance(some, pa.ChunkedArray) else some
            return bytes(array.buffers()[1])[: len(array) * _CELL]

        made = Pyramid(
            self._width,
            [(hook, name) for hook, _, name in (word.partition("\0") for word in series.dictionary.to_pylist())],
            blocks.dictionary.to_pylist(),
            packed(series.indices, pa.int32()),
            packed(blocks.indices, pa.int32()),
            packed(pc.subtract(table["bucket"], first), pa.int32()),
            packed(table["value_min"], pa.float32()),
            packed(high, pa.float32()),
            packed(mean, pa.float32()),
            packed(table["value_count"], pa.int32()),
        )
        data = msgspec.msgpack.encode([int(first), made])
        text = base64.b64encode(zlib.compress(data, 6)) if len(data) <= MAX_BYTES else b""
        return text if 0 < len(text) <= MAX_TEXT else None


def read_pyramid(text: bytes, cells: int) -> tuple[int, Pyramid] | None:
    """Decode a summary. Return the bucket from which buckets are counted, and the summary, or None if it is not valid.

    Args:
        text: The text in the metadata.
        cells: The largest number of cells, for example the number of rows of the part.
    """
    try:
        unpack = zlib.decompressobj()
        data = unpack.decompress(base64.b64decode(text, validate=True), MAX_BYTES)
        if not unpack.eof:
            return None
        first, made = msgspec.msgpack.decode(data, type=tuple[int, Pyramid])
    except (binascii.Error, zlib.error, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    columns = (made.at_series, made.at_block, made.at_bucket, made.low, made.high, made.mean, made.count)
    size = _CELL * made.cells
    if made.width < 1 or made.cells > cells or any(len(column) != size for column in columns):
        return None
    if not (_below(made.at_series, len(made.series)) and _below(made.at_block, len(made.blocks))):
        return None
    if not _below(made.at_bucket, 2**31 - 1) or not -(2**62) < first * made.width < 2**62:
        return None
    return first, made


def _below(numbers: bytes, most: int) -> bool:
    """Return True if all numbers of a column are places in a list of this length."""
    import numpy as np

    values = np.frombuffer(numbers, np.int32)
    return not len(values) or bool(values.min() >= 0 and values.max() < most)
