"""Forge the parts of hostile run folders: wrong columns, wrong values, wrong descriptions, cut and flipped files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.record import forged_parquet as forged

#: step, rank, hook, target, name, value, values, call, leaf
Row = tuple[int | None, int | None, str | None, str | None, str | None, float | None, list[Any] | None, Any, Any]
Build = Callable[[Path, Path], None]

COLUMNS: dict[str, pa.DataType] = {
    "step": pa.int64(),
    "rank": pa.int32(),
    "hook": pa.string(),
    "target": pa.string(),
    "name": pa.string(),
    "value": pa.float64(),
    "values": pa.list_(pa.float64()),
    "call": pa.int32(),
    "leaf": pa.int32(),
}
PART = "part-0001-0-000001.parquet"
#: a word in each file outside the folder; no reader may show it
SECRET = "secret-of-another-folder"


@dataclass(frozen=True)
class Case:
    """A folder with a name. `build` fills an empty folder, and may use files in another folder, which must not change.

    If `rows` is known, a reader that does not refuse the folder must return these rows. If `innocent` is True, it must
    not refuse the folder.
    """

    name: str
    build: Build
    rows: tuple[Row, ...] | None = None
    innocent: bool = False
    #: the name of the folder
    path: str = "run"
    #: give up the rights of the superuser, who may read every file
    humble: bool = False
    #: a hard link makes a file outside the folder also a file of the folder, so that it may be read
    shared: bool = False


def row(step: int = 0, hook: str = "grads", target: str = "a.weight", name: str = "norm", value: float = 0.5) -> Row:
    """Return a row with one number."""
    return step, 0, hook, target, name, value, None, None, None


def histogram(step: int = 0, target: str = "a.weight", values: list[Any] | None = None) -> Row:
    """Return a row with a list of numbers."""
    return step, 0, "hist", target, "log2", None, [1.0, 2.0] if values is None else values, None, None


ROWS = (*tuple(row(step, target=target) for step in range(4) for target in ("a.weight", "b.weight")), histogram())


def table(rows: tuple[Row, ...] | list[Row] = ROWS) -> pa.Table:
    """Return rows as an Arrow table."""
    columns = list(map(list, zip(*rows, strict=True))) or [[] for _ in COLUMNS]
    return pa.table([pa.array(c, kind) for c, kind in zip(columns, COLUMNS.values(), strict=True)], list(COLUMNS))


def described(made: pa.Table, first: Any = 0, last: Any = 3, replaces: Any = (), format: Any = 1) -> pa.Table:
    """Add the description that a store writes."""
    about = {"tenterhook": format, "first": first, "last": last, "replaces": replaces}
    return made.replace_schema_metadata({"tenterhook": json.dumps(about)})


def part(rows: tuple[Row, ...] | list[Row] = ROWS, replaces: Any = (), **options: Any) -> bytes:
    """Return the content of a correct part."""
    steps = [one[0] for one in rows if one[0] is not None] or [0]
    return forged.written(described(table(rows), min(steps), max(steps), replaces), **options)


def put(**files: bytes | str | Callable[[], bytes]) -> Build:
    """Return a function that writes files. A name of an argument stands for a file; PART is always there."""
    names = {"plan": "plan.json", "ledger": "ledger.json", "findings": "findings.json", "part": PART}

    def build(folder: Path, outside: Path) -> None:
        for name, data in {"part": part, **files}.items():
            content = data() if callable(data) else data
            (folder / names.get(name, name)).write_bytes(content.encode() if isinstance(content, str) else content)

    return build


def only(name: str, data: bytes | Callable[[], bytes]) -> Build:
    """Return a function that writes one file and nothing else."""
    return lambda folder, outside: (folder / name).write_bytes(data() if callable(data) else data) and None


def plant(outside: Path) -> None:
    """Write the files that no reader may open or change."""
    outside.mkdir()
    (outside / "part.parquet").write_bytes(part([row(target=SECRET)]))
    for name, text in {"plan": {"plan": SECRET}, "ledger": {"ledger": [{"hook": SECRET}]},
                       "findings": {"findings": [{"title": SECRET}]}, "report": SECRET}.items():  # fmt: skip
        (outside / f"{name}.json").write_text(json.dumps(text))
    (outside / "folder").mkdir()
    (outside / "folder" / "flight.json").write_text(
        json.dumps({"path": "", "step": 1, "reason": SECRET, "suspects": []})
    )


# -- columns ---------------------------------------------------------------------------------------------------------


def _columns(change: Callable[[dict[str, Any]], Any]) -> bytes:
    columns: dict[str, Any] = dict(zip(COLUMNS, table().columns, strict=True))
    changed = change(columns) or columns
    return forged.written(described(pa.table(changed)))


def _nested(depth: int) -> pa.Array:
    kind: pa.DataType = pa.float64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return pa.nulls(len(ROWS), kind)


def _typed(kind: pa.DataType) -> pa.Array:
    """Return an array with null values, except for numbers of time, which Parquet stores as integers."""
    return pa.array(range(len(ROWS)), kind) if pa.types.is_temporal(kind) else pa.nulls(len(ROWS), kind)


def schemas() -> Iterator[Case]:
    """Yield parts with other columns than a store writes."""
    kinds: dict[str, pa.DataType] = {
        "text": pa.string(),
        "bytes": pa.binary(),
        "duration": pa.duration("ns"),
        "struct": pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        "unsigned": pa.uint64(),
        "large text": pa.large_string(),
        "words": pa.dictionary(pa.int8(), pa.string()),
        "list": pa.large_list(pa.float64()),
        "fixed list": pa.list_(pa.float64(), 2),
        "null": pa.null(),
    }
    for column in COLUMNS:
        yield Case(f"schema: without {column}", put(part=partial(_columns, lambda c, n=column: c.pop(n) and None)))
        renamed = partial(_columns, lambda c, n=column: {("X" + k if k == n else k): v for k, v in c.items()})
        yield Case(f"schema: {column} has another name", put(part=renamed))
        upper = partial(_columns, lambda c, n=column: {(k.upper() if k == n else k): v for k, v in c.items()})
        yield Case(f"schema: {column} in capitals", put(part=upper))
        null = partial(_columns, lambda c, n=column: c.update({n: pa.nulls(len(ROWS), COLUMNS[n])}))
        yield Case(f"schema: {column} has no values", put(part=null))
        for label, kind in kinds.items():
            other = partial(_columns, lambda c, n=column, k=kind: c.update({n: _typed(k)}))
            yield Case(f"schema: {column} is {label}", put(part=other))
    for label, extra in {"one more": "x", "run": "run", "markup": "<script>", "empty": "", "sql": "a' or 1 --"}.items():
        more = partial(_columns, lambda c, n=extra: c.update({n: c["step"]}))
        yield Case(f"schema: a column more, {label}", put(part=more))
    yield Case("schema: reversed", put(part=partial(_columns, lambda c: dict(reversed(c.items())))))
    yield Case("schema: no columns", put(part=lambda: forged.written(described(pa.table({})))))
    many = partial(_columns, lambda c: c.update({f"c{i}": c["step"] for i in range(3000)}))
    yield Case("schema: thousands of columns", put(part=many))
    for depth in (2, 30):
        deep = partial(_columns, lambda c, d=depth: c.update(values=_nested(d)))
        yield Case(f"schema: lists in {depth} lists", put(part=deep))
    doubled = [*COLUMNS, "step"]
    yield Case("schema: step twice", put(part=lambda: forged.written(described(
        pa.table([*table().columns, table()["step"]], doubled)))))  # fmt: skip


def values() -> Iterator[Case]:
    """Yield parts whose columns are right and whose values are not."""
    inf, nan, most, least = float("inf"), float("nan"), 2**63 - 1, -(2**63)
    rows: dict[str, list[Row]] = {
        "no hook": [(0, 0, None, "t", "n", 1.0, None, None, None)],
        "no target": [(0, 0, "h", None, "n", 1.0, None, None, None)],
        "no name": [(0, 0, "h", "t", None, 1.0, None, None, None)],
        "no names in one row": [*ROWS, (0, 0, None, None, None, 1.0, None, None, None)],
        "no step": [(None, 0, "h", "t", "n", 1.0, None, None, None), row()],
        "no rank": [(0, None, "h", "t", "n", 1.0, None, None, None)],
        "no value and no list": [(0, 0, "h", "t", "n", None, None, None, None)],
        "a null value in one step": [row(0), (1, 0, "grads", "a.weight", "norm", None, None, None, None)],
        "a value and a list under one name": [row(0), (5, 0, "grads", "a.weight", "norm", None, [1.0], None, None)],
        "empty list": [histogram(values=[])],
        "null in a list": [histogram(values=[1.0, None]), histogram(target="b.c", values=[1.0, None])],
        "null in one of two lists": [histogram(target="a.b", values=[None]), histogram(target="c.d", values=[2.0])],
        "not a number in a list": [histogram(values=[nan, 1.0])],
        "infinite in a list": [histogram(values=[inf, -inf])],
        "infinite sum of a list": [histogram(target=t, values=[1.7e308]) for t in "abc"],
        "lists of different lengths": [histogram(target=str(i), values=[1.0] * i) for i in range(9)],
        "values that are not finite": [row(i, value=v) for i, v in enumerate((inf, -inf, nan, 0.0, -0.0))],
        "smallest and largest values": [row(i, value=v) for i, v in enumerate((5e-324, 1.7e308, -1.7e308))],
        "only zeros": [row(i, value=0.0) for i in range(4)],
        "smallest and largest steps": [row(least), row(most)],
        "largest step": [row(most), row(most - 1)],
        "smallest step": [row(least)],
        "negative steps": [row(-5), row(-1)],
        "far steps": [row(0), row(2**62)],
        "dropped": [row(), (0, 0, "tenterhook", "recorder", "dropped", 1e308, None, None, None)],
        "dropped, not a number": [row(), (0, 0, "tenterhook", "recorder", "dropped", nan, None, None, None)],
        "only dropped": [(0, 0, "tenterhook", "recorder", "dropped", 1.0, None, None, None)],
        "another rank than the name": [(0, 7, "h", "t", "n", 1.0, None, None, None)],
        "extreme ranks": [(0, r, "h", "t", "n", 1.0, None, r, r) for r in (-(2**31), 2**31 - 1)],
        "the same row twice": [row(), row()],
        "a list and a number of one target": [row(hook="hist"), histogram()],
    }
    for label, made in rows.items():
        yield Case(f"values: {label}", put(part=partial(part, made)), None if "not a" in label else tuple(made))
    for label, made in (("dictionary", [row()]), ("plain", [row()])):
        yield Case(f"values: rows out of order, {label}", put(part=partial(part, made * 3 + list(ROWS))))


def descriptions() -> Iterator[Case]:
    """Yield parts whose description is wrong."""
    about = {"tenterhook": 1, "first": 0, "last": 3, "replaces": []}
    texts: dict[str, bytes] = {
        "empty": b"",
        "not JSON": b"{",
        "null": b"null",
        "a list": b"[1]",
        "a number": b"1",
        "not UTF-8": b'{"tenterhook": 1, "\xff": 1}',
        "deep": b"[" * 100_000,
        "deep objects": b'{"a":' * 100_000,
        "a huge number": b'{"tenterhook": ' + b"9" * 100_000 + b"}",
        "large": b'{"tenterhook": 1, "x": "' + b"x" * 3_000_000 + b'"}',
        "duplicate keys": b'{"tenterhook": 2, "tenterhook": 1, "first": 0, "last": 3, "replaces": []}',
    }
    changes: dict[str, tuple[str, Any]] = {}
    odd = (None, -1, 2**63, 2**64, 1.5, True, "0", [], {}, 10**400, float("nan"), float("inf"))
    for field in about:
        changes |= {f"{field} is {str(one)[:20]!r}": (field, one) for one in odd}
    for label, (field, one) in changes.items():
        texts[label] = json.dumps({**about, field: one}).encode()
    many = [f"part-0001-0-{i:06}.parquet" for i in range(50_000)]
    for label, replaces in {"many": many, "null": [None], "nested": [[PART]], "markup": ["<script>"]}.items():
        texts[f"replaces {label}"] = json.dumps({**about, "replaces": replaces}).encode()
    for label, text in texts.items():
        made = partial(lambda t: forged.written(table().replace_schema_metadata({"tenterhook": t})), text)
        yield Case(f"description: {label}", put(part=made))
    yield Case("description: missing", put(part=lambda: forged.written(table().replace_schema_metadata(None))))
    for key, text in (("geo", '{"version":"1.1.0","primary_column":"hook","columns":{"hook":{"encoding":"WKB"}}}'),
                      ("ARROW:schema", "AAAA"), ("ARROW:schema", "\0"), ("pandas", '{"columns": 1}')):  # fmt: skip

        def with_key(key: str = key, text: str = text) -> bytes:
            data = forged.written(described(table()), arrow_schema=False)
            made = forged.footer(data)
            pair = forged.Struct([(1, forged.BINARY, key.encode()), (2, forged.BINARY, text.encode())])
            made.get(5)[1].append(pair)
            return forged.with_footer(data, made)

        yield Case(f"description: {key} is {text[:9]!r}", put(part=with_key))


# -- damage ----------------------------------------------------------------------------------------------------------


@cache
def whole() -> bytes:
    """Return a part with two row groups, dictionaries and lists."""
    rows = [row(step, target=f"layers.{t}.weight") for t in range(5) for step in range(40)]
    return part(rows + [histogram(step) for step in range(10)], row_group_size=120)


def _flipped(seed: int, tail: bool, count: int) -> bytes:
    chance, data = random.Random(seed), bytearray(whole())
    size = int.from_bytes(data[-8:-4], "little") + 8
    for _ in range(count):
        at = chance.randrange(len(data) - size, len(data)) if tail else chance.randrange(len(data) - size)
        data[at] ^= 1 << chance.randrange(8)
    return bytes(data)


def damaged() -> Iterator[Case]:
    """Yield parts that are cut, flipped, or that lie in a footer or a page header."""
    size = len(whole())
    for at in sorted({*range(13), *(size * i // 24 for i in range(24)), *range(size - 9, size)}):
        yield Case(f"cut: {at} of {size} bytes", put(part=whole()[:at]))
    for seed in range(30):
        yield Case(f"flipped: footer, seed {seed}", put(part=partial(_flipped, seed, True, 1 + seed % 3)))
        yield Case(f"flipped: pages, seed {seed}", put(part=partial(_flipped, seed, False, 1 + seed % 3)))
    chance, footer = random.Random(1), [path for path, _, _ in forged.integers(forged.footer(whole()))]
    odd = (-1, 0, 1, 2**31 - 1, 2**31, 2**62, -(2**63), size, size - 4, 7)
    for path in sorted(chance.sample(footer, min(80, len(footer)))):
        lie = chance.choice(odd)
        yield Case(f"footer: {path} is {lie}", put(part=partial(forged.lying_footer, whole(), path, lie)))
    pages = forged.first_pages(whole())
    fields = [(column, at, path) for column, at in pages.items() for path in forged.page_fields(whole(), at)]
    for column, at, path in sorted(chance.sample(fields, min(60, len(fields)))):
        lie = chance.choice((-1, 0, 1, 2**31 - 1, 2**30, 10**9, 5))
        yield Case(f"page: {column} {path} is {lie}", put(part=partial(forged.lying_page, whole(), at, path, lie)))
    for label, data in {"zeros": bytes(9999), "only a footer": whole()[-2000:], "text": b"PAR1 PAR1", "twice":
                        whole() * 2, "something before": b"x" * 99 + whole(), "encrypted": whole()[:-4] + b"PARE",
                        "something after": whole() + b"x"}.items():  # fmt: skip
        yield Case(f"damaged: {label}", put(part=data))
