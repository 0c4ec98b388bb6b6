"""Forge run folders that are much larger than they look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.record import forged_parquet as forged
from tests.support.record.hostile_parts import Build, Case, described, part, put, table


def _constant(rows: int, target: str = "t", values: list[float] | None = None, step: int = 0) -> pa.Table:
    """Return a table with the same row many times, which is small in a file."""
    hook = "grads" if values is None else "hist"
    one = (step, 0, hook, target, "norm", None if values else 0.5, values, None, None)
    small = table([one])
    return small.take(pa.array([0] * rows, pa.int64())) if values is None else pa.concat_tables([small] * rows)


def _bomb(rows: int, times: int, *, pad: int = 0, **options: Any) -> bytes:
    """Return a part that has some rows once and lists them many times. Zeros before the footer make it larger."""
    data = forged.written(described(_constant(rows)), row_group_size=2**20, data_page_size=2**24, **options)
    size = int.from_bytes(data[-8:-4], "little") + 8
    return forged.repeated_groups(data[:-size] + bytes(pad) + data[-size:], times)


def _long_word(letters: int, rows: int, place: str, letter: str = "x", **options: Any) -> bytes:
    """Return a part with one long word in many rows. A dictionary stores the word once."""
    made = _constant(rows) if place != "block" else _constant(rows, values=[1.0])
    column = "target" if place == "block" else place
    words = pa.DictionaryArray.from_arrays(pa.array([0] * len(made), pa.int32()), pa.array([letter * letters]))
    at = made.column_names.index(column)
    return forged.written(described(made.set_column(at, column, words)), dictionary_pagesize_limit=2**30, **options)


def _series(count: int, length: int = 8) -> bytes:
    """Return a part with many different targets."""
    made = _constant(count)
    words = pa.array([f"{i:0{length}}" for i in range(count)])
    return forged.written(described(made.set_column(3, "target", words)), row_group_size=2**17)


def _lists(length: int, rows: int, times: int) -> bytes:
    """Return a part with long lists of the same number."""
    made = pa.concat_tables([_constant(1, values=[1.0] * length)] * rows)
    return forged.repeated_groups(forged.written(described(made), row_group_size=1, data_page_size=2**24), times)


def _changed_footer(change: Callable[[forged.Struct], None]) -> bytes:
    made = forged.footer(part())
    change(made)
    return forged.with_footer(part(), made)


def _repetition(place: int, kind: int) -> Callable[[forged.Struct], None]:
    return lambda footer: footer.get(2)[1][place].set(3, kind)


def _short_histogram(footer: forged.Struct) -> None:
    statistics = footer.get(4)[1][0].get(1)[1][0].get(3).get(16)
    statistics.set(3, (forged.I64, [1]))


def _many(name: Callable[[int], str], count: int, data: bytes = b"") -> Build:
    def build(folder: Path, outside: Path) -> None:
        put()(folder, outside)
        for number in range(count):
            at = folder / name(number)
            at.parent.mkdir(exist_ok=True)
            at.write_bytes(data)

    return build


def sizes() -> Iterator[Case]:
    """Yield folders that are much larger than they look."""
    bombs: dict[str, Callable[[], bytes]] = {
        "2e8 rows": lambda: _bomb(10**6, 200),
        "2e8 rows in 26 MB": lambda: _bomb(10**6, 200, pad=26 * 10**6),
        "2e8 rows without checksums": lambda: _bomb(10**6, 200, pad=26 * 10**6, write_page_checksum=False),
        "4e6 rows": lambda: _bomb(10**6, 4),
        "4e6 rows without a dictionary": lambda: _bomb(10**6, 4, use_dictionary=False),
        "a row group of 8e6 rows": lambda: forged.written(described(_constant(8 * 10**6)), row_group_size=2**23),
        "thousands of row groups": lambda: _bomb(10, 3000),
        "thousands of empty row groups": lambda: forged.repeated_groups(part(()), 3000),
        "a row in each row group": lambda: forged.written(described(_constant(1500)), row_group_size=1),
        "a claim of 2e8 rows": lambda: _changed_footer(lambda footer: footer.set(3, 2 * 10**8)),
        "a claim of -1 rows": lambda: _changed_footer(lambda footer: footer.set(3, -1)),
        "a huge footer": lambda: forged.written(described(table()).replace_schema_metadata(
            {**described(table()).schema.metadata, "x": "x" * 5_000_000})),
        "a footer just below the limit": lambda: forged.written(described(table()).replace_schema_metadata(
            {**described(table()).schema.metadata, "x": "x" * 2_000_000}), arrow_schema=False),
        "many keys in the footer": lambda: forged.written(described(table()).replace_schema_metadata(
            {**described(table()).schema.metadata, **{str(i): "" for i in range(200_000)}}), arrow_schema=False),
        "400,000 targets": lambda: _series(400_000),
        "400,000 long targets": lambda: _series(400_000, 120),
        "600,000 targets": lambda: _series(600_000),
        "90,000 long targets": lambda: _series(90_000, 500),
        "a list of 8e6 numbers": lambda: _lists(8 * 10**6, 1, 1),
        "a list of 8e6 numbers, 300 times": lambda: _lists(8 * 10**6, 1, 300),
        "a list of 2e7 numbers": lambda: _lists(2 * 10**7, 1, 1),
        "lists of 1000 numbers": lambda: _lists(1000, 1, 2000),
    }  # fmt: skip
    for place in ("hook", "target", "name", "block"):
        bombs[f"a {place} of 60 MB"] = partial(_long_word, 60_000_000, 1, place)
        bombs[f"a {place} of 60 kB in 50,000 rows"] = partial(_long_word, 60_000, 50_000, place)
        plain = partial(_long_word, 60_000, 50_000, place, arrow_schema=False)
        bombs[f"a {place} of 60 kB in 50,000 rows, not as a dictionary in Arrow"] = plain
    bombs["a target of dots"] = partial(_long_word, 50_000_000, 1, "block", ".")
    bombs["a target of digits"] = partial(_long_word, 20_000_000, 1, "target", "9.")
    for codec in ("gzip", "brotli", "lz4", "snappy"):
        bombs[f"a target of 60 MB by {codec}"] = partial(_long_word, 60_000_000, 1, "target", compression=codec)
    for label, data in bombs.items():
        yield Case(f"size: {label}", put(part=data))
    for place, column in enumerate(("step", "hook", "value")):
        at = (1, 3, 6)[place]
        for label, kind in (("required", 0), ("repeated", 2), ("unknown", 9)):
            yield Case(f"footer: {column} is {label}", put(part=partial(_changed_footer, _repetition(at, kind))))
    yield Case("footer: a histogram of levels is too short", put(part=partial(_changed_footer, _short_histogram)))
    yield Case("size: 3,000 parts", _many(lambda i: f"part-0001-0-{i + 2:06}.parquet", 3000, part()))
    yield Case("size: 3,000 damaged parts", _many(lambda i: f"part-0002-0-{i:06}.parquet", 3000, part()[:-9]))
    yield Case("size: 140,000 files", _many(lambda i: f"{i}.txt", 140_000))
    yield Case("size: 20,000 plans in folders", _many(lambda i: f"{i:0200}/plan.json", 20_000))
    yield Case("size: 300 flights", _many(lambda i: f"flights{i}", 300))
