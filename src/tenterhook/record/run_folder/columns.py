"""Define the columns of a part, and the order of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

#: sort order of the rows in a part, which makes the rows of a curve adjacent
ORDER = ("hook", "target", "name", "rank", "step")


def schema() -> pa.Schema:
    """Return the schema of a part."""
    import pyarrow as pa

    word = pa.dictionary(pa.int32(), pa.string())
    columns = {
        "step": pa.int64(),
        "rank": pa.int32(),
        "hook": word,
        "target": word,
        "name": word,
        "value": pa.float64(),
        "values": pa.list_(pa.float64()),
        "call": pa.int32(),
        "leaf": pa.int32(),
    }
    return pa.schema(list(columns.items()))


def sort_rows(table: pa.Table) -> pa.Table:
    """Sort rows by ORDER. Dictionary-encoded text is sorted alphabetically, not by dictionary index."""
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
