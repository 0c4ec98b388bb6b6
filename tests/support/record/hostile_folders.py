"""Forge run folders that are hostile, damaged, or innocent but odd. Share no code with the readers that they attack."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.record import forged_parquet as forged
from tests.support.record.hostile_parts import (
    PART,
    ROWS,
    Build,
    Case,
    Row,
    damaged,
    described,
    descriptions,
    histogram,
    only,
    part,
    put,
    row,
    schemas,
    table,
    values,
)
from tests.support.record.hostile_sizes import sizes
from tests.support.record.hostile_words import WORDS

Text = bytes | str | Callable[[], bytes]

# -- links, devices and modes ----------------------------------------------------------------------------------------

#: the names that a run folder may have, and the file outside the folder that a link points to
NAMES = {PART: "part.parquet", "plan.json": "plan.json", "ledger.json": "ledger.json", "findings.json": "findings.json",
         "report.html": "report.json", ".writer-0": "report.json", "flights": "folder",
         "flights/one": "folder", "flights/one/flight.json": "folder/flight.json",
         "part-0009-0-000009.parquet": "part.parquet"}  # fmt: skip


def _socket(at: Path) -> None:
    here = os.getcwd()
    os.chdir(at.parent)  # the path of a socket is at most 107 bytes long
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(at.name)
    os.chdir(here)


KINDS: dict[str, Callable[[Path, Path], Any]] = {
    "link to a file outside": lambda at, out: at.symlink_to(out),
    "relative link to a file outside": lambda at, out: at.symlink_to(os.path.relpath(out, at.parent)),
    "link to zeros": lambda at, out: at.symlink_to("/dev/zero"),
    "link to itself": lambda at, out: at.symlink_to(at.name),
    "broken link": lambda at, out: at.symlink_to(out.parent / "new"),
    "link to a folder": lambda at, out: at.symlink_to(out.parent),
    "hard link": lambda at, out: os.link(out, at) if out.is_file() else at.touch(),
    "queue": lambda at, out: os.mkfifo(at),
    "device": lambda at, out: os.mknod(at, stat.S_IFCHR | 0o666, os.makedev(1, 5)),
    "folder": lambda at, out: (at.mkdir(), (at / "x").touch()),
    "socket": lambda at, out: _socket(at),
    "empty file": lambda at, out: at.touch(),
    "mode 0": lambda at, out: (at.touch(), at.chmod(0)),
}


def _special(name: str, kind: str, folder: Path, outside: Path) -> None:
    put()(folder, outside)
    at = folder / name
    at.parent.mkdir(parents=True, exist_ok=True)
    at.unlink(missing_ok=True)
    KINDS[kind](at, outside / NAMES[name])


def specials() -> Iterator[Case]:
    """Yield folders in which a name stands for something else than a regular file."""
    for name in NAMES:
        for kind in KINDS:
            if kind == "device" and os.geteuid():
                continue
            yield Case(
                f"{kind}: {name}", partial(_special, name, kind), humble=kind == "mode 0", shared=kind == "hard link"
            )
    for mode in (0o000, 0o111, 0o444, 0o555):

        def build(folder: Path, outside: Path, mode: int = mode) -> None:
            put()(folder, outside)
            folder.chmod(mode)

        yield Case(f"mode {mode:03o}: the folder", build, humble=True)


def _instead(make: Callable[[Path, Path], Any]) -> Build:
    def build(folder: Path, outside: Path) -> None:
        folder.rmdir()
        make(folder, outside)

    return build


def replaced() -> Iterator[Case]:
    """Yield paths that are not a folder at all."""
    for kind in ("link to itself", "broken link", "queue", "device", "empty file", "socket"):
        if kind != "device" or not os.geteuid():
            yield Case(f"{kind} instead of the folder", _instead(lambda at, out, k=kind: KINDS[k](at, out / "x" / "y")))
    yield Case("nothing instead of the folder", _instead(lambda at, out: None))
    yield Case("an empty folder", lambda folder, outside: None)


def hostile_names() -> Iterator[Case]:
    """Yield folders with hostile words as hooks, targets, names, in the JSON files, and as the name of the folder."""
    for label, word in WORDS.items():
        rows = (row(hook=word), row(target=word), row(name=word), row(1, word, word, word), histogram(target=word))
        yield Case(f"names: {label}", put(part=partial(part, rows)), rows)
        entry = {"hook": word, "do": word, "at": word, word: word, "severity": word, "code": word, "skipped": {word: 1}}

        def build(folder: Path, outside: Path, word: str = word, entry: dict[str, Any] = entry) -> None:
            text = {"ledger": {"ledger": [entry]}, "findings": {"findings": [entry]}, "plan": {"hooks": [entry]}}
            put(**{name: json.dumps(one) for name, one in text.items()})(folder, outside)
            below = folder / "flights" / "step-1"
            below.mkdir(parents=True)
            flight = {"path": word, "step": 1, "reason": word, "suspects": [entry]}
            (below / "flight.json").write_text(json.dumps(flight))

        yield Case(f"JSON: {label}", build, ROWS)
        if not {"/", "\0"} & set(word) and 0 < len(os.fsencode(word)) < 200 and word not in (".", ".."):
            yield Case(f"folder: {label}", put(), ROWS, innocent=True, path=f"run {word}")


# -- JSON ------------------------------------------------------------------------------------------------------------


def _documents(key: str) -> dict[str, Text]:
    """Return texts instead of a JSON file whose only key is `key`."""
    entry = '{"hook": "h", "fired": 1}'
    made: dict[str, Text] = {
        f"value {text[:12]}": f'{{"{key}": {text}}}'
        for text in (
            "null",
            "1",
            '"x"',
            "{}",
            "[1]",
            "[null]",
            "[[]]",
            '[{"a": [1]}]',
            '[{"a": {"b": "c"}}]',
            "[{1: 2}]",
        )
    }
    for number in (
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e999",
        "9" * 30,
        "9" * 5000,
        "1e-999",
        "-0",
        "0x10",
        "1.",
    ):
        made[f"number {number[:9]}"] = f'{{"{key}": [{{"hook": "h", "fired": {number}}}]}}'
    return made | {
        "huge numbers of reasons": f'{{"{key}": [{{"skipped": {{"x": {10**40}}}}}]}}',
        "empty file": b"",
        "spaces": b" " * 99,
        "cut": f'{{"{key}": [{entry}',
        "zero bytes": bytes(99),
        "not UTF-8": b'{"' + key.encode() + b'": [{"hook": "\xff\xfe"}]}',
        "UTF-16": f'{{"{key}": []}}'.encode("utf-16"),
        "byte order mark": "\ufeff" + f'{{"{key}": []}}',
        "half a pair": f'{{"{key}": [{{"hook": "\\ud800"}}]}}',
        "raw half a pair": b'{"' + key.encode() + b'": [{"hook": "\xed\xa0\x80"}]}',
        "zero in a text": f'{{"{key}": [{{"hook": "\\u0000"}}]}}',
        "a list": f"[{entry}]",
        "a number": "1",
        "no key": "{}",
        "another version": f'{{"tenterhook": 99, "{key}": [{entry}]}}',
        "duplicate keys": f'{{"{key}": 1, "{key}": [{{"hook": "h", "hook": "i"}}]}}',
        "deep lists": lambda: b"[" * 1_000_000,
        "deep objects": lambda: f'{{"{key}":'.encode() * 200_000,
        "deep value": lambda: f'{{"{key}": [{{"a": '.encode() + b'{"a": ' * 200_000,
        "deep and ignored": lambda: f'{{"{key}": [], "x": '.encode() + b"[" * 500_000 + b"]" * 500_000 + b"}",
        "too large": lambda: b" " * (2**24 + 1),
        "many entries": lambda: f'{{"{key}": ['.encode() + b"{}," * 5_500_000 + b"{}]}",
        "many keys": lambda: (
            f'{{"{key}": [{{'.encode() + b"".join(b'"%d":1,' % i for i in range(1_500_000)) + b'"":1}]}'
        ),
        "a long text": lambda: f'{{"{key}": [{{"hook": "'.encode() + b"x" * 16_000_000 + b'"}]}',
        "a long text of escapes": lambda: f'{{"{key}": [{{"hook": "'.encode() + b"\\u0001" * 2_700_000 + b'"}]}',
        "a long name": lambda: f'{{"{key}": [{{"'.encode() + b"x" * 16_000_000 + b'": 1}]}',
    }


def documents() -> Iterator[Case]:
    """Yield folders with a wrong JSON file."""
    for key in ("ledger", "findings", "plan"):
        texts = _documents("hooks" if key == "plan" else key)
        for label, text in list(texts.items())[:: 3 if key == "findings" else 1]:
            yield Case(f"{key}.json: {label}", put(**{key: text}))
    full = {"path": "p", "step": 1, "reason": "r", "suspects": []}
    flights = _documents('path": "", "step": 1, "reason": "", "suspects')
    for key, value in ((key, value) for key in full for value in (None, 1.5, 10**40)):
        flights[f"{key} is {value!r:.9}"] = json.dumps({**full, key: value})
    for label, text in list(flights.items())[::2]:

        def build(folder: Path, outside: Path, text: Text = text) -> None:
            put(flight=text)(folder, outside)
            (folder / "flights" / "one").mkdir(parents=True)
            (folder / "flight").rename(folder / "flights" / "one" / "flight.json")

        yield Case(f"flight.json: {label}", build)


# -- attempts and replaced parts -------------------------------------------------------------------------------------


def _parts(*parts: tuple[str, bytes]) -> Build:
    return lambda folder, outside: [(folder / name).write_bytes(data) for name, data in parts] and None


def _name(attempt: int, number: int, rank: int = 0) -> str:
    return f"part-{attempt:04}-{rank}-{number:06}.parquet"


def attempts() -> Iterator[Case]:
    """Yield folders with several parts, which overlap or replace each other."""
    one, two = _name(1, 1), _name(1, 2)
    later = part([row(step) for step in range(2, 6)])
    kept = tuple(r for r in ROWS if r[0] is not None and r[0] < 2) + tuple(row(step) for step in range(2, 6))
    yield Case("attempts: the second one repeats two steps", _parts((one, part()), (_name(2, 1), later)), kept, True)
    replaces: dict[str, dict[str, list[str]]] = {
        "itself": {one: [one]},
        "itself and another": {one: [one, two], two: []},
        "each other": {one: [two], two: [one]},
        "a cycle of three": {one: [two], two: [_name(1, 3)], _name(1, 3): [one]},
        "a file outside": {one: ["../../outside/part.parquet", "../../outside/report.json"]},
        "a file from the root": {one: ["/etc/hostname"]},
        "the plan": {one: ["plan.json", "ledger.json", ".writer-0", "", ".", ".."]},
        "patterns": {one: ["*", "part-*", "**/*"], two: []},
        "a part that does not exist": {one: ["part-0001-0-000099.parquet"]},
        "a later attempt": {one: [_name(2, 1)], _name(2, 1): []},
        "zero bytes": {one: ["part\0.parquet"]},
    }
    for label, made in replaces.items():
        yield Case(f"replaces: {label}", _parts(*((name, part(replaces=old)) for name, old in made.items())))
    ends = {"largest attempt": "part-999999999-0-000001.parquet", "largest rank": "part-0001-999999999-000001.parquet",
            "largest number": "part-0001-0-999999999999.parquet", "reversed": "part-0001-0-000009-000001.parquet",
            "too many digits": "part-0001-0-9999999999999.parquet", "other digits": "part-٠٠٠١-0-000001.parquet",
            "attempt zero": "part-0000-0-000000.parquet", "a line at the end": PART + "\n"}  # fmt: skip
    for label, name in ends.items():
        yield Case(f"part name: {label}", only(name, part), ROWS)
    plain, words = part(), forged.written(described(table().set_column(2, "hook", table()["hook"].dictionary_encode())))
    yield Case("two parts: text and dictionary", _parts((one, plain), (two, words)))
    wide = forged.written(
        described(table().set_column(6, "values", table()["values"].cast(pa.large_list(pa.float64()))))
    )
    yield Case("two parts: list and large list", _parts((one, plain), (two, wide)))
    yield Case("two parts: one is damaged", _parts((one, plain), (two, plain[:-100])))
    yield Case("two parts: one lies about its steps", _parts(
        (one, plain), (_name(2, 1), forged.written(described(table([row(9)]), 0, 0)))))  # fmt: skip
    yield Case("two parts: the first step is lower than every row", _parts(
        (one, plain), (_name(2, 1), forged.written(described(table([row(9)]), -(2**63), 9)))))  # fmt: skip


# -- innocent folders ------------------------------------------------------------------------------------------------


def innocents() -> Iterator[Case]:
    """Yield folders that are odd, and that every reader must read."""

    def fine(label: str, build: Build, rows: tuple[Row, ...] = ROWS, path: str = "run") -> Case:
        return Case(f"innocent: {label}", build, rows, True, path)

    def beside(folder: Path, outside: Path) -> None:
        put()(folder, outside)
        for name in ("notes.txt", ".DS_Store", "part.parquet", "part-1-2-3.parquet", "part-0001-0-000001.parquet.tmp"):
            (folder / name).write_text("unrelated")
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints" / "plan.json").write_text("unrelated")
        (folder / "link").symlink_to("notes.txt")

    for label, word in {
        "a superscript": "²",
        "a fraction": "½.weight",
        "a space": "a b",
        "a wildcard": "a*[0]",
    }.items():
        rows = (row(target=word), row(1, target=word), histogram(target=word))
        yield fine(f"a target with {label}", put(part=partial(part, rows)), rows)
    for label, path in {"brackets": "run[1]", "a star": "run*", "a question mark": "run?", "braces": "{a,b}",
                        "spaces": " a run ", "letters": "lauf ü 実行 🙂", "a quote": "it's", "two quotes": 'a "run"',
                        "a percent sign": "100%20", "a hash": "run#1", "an equals sign": "lr=0.1", "a comma": "a,b",
                        "a colon": "12:30", "a backslash": "a\\b", "a semicolon": "a;b", "a dollar sign": "$HOME",
                        "a tilde": "~", "a line": "a\nb", "many letters": "x" * 200, "a dash": "-run", "a dot": ".run",
                        "a folder like a part": PART}.items():  # fmt: skip
        yield fine(f"a path with {label}", put(), path=path)
    yield Case("folder: not UTF-8", put(), ROWS, path=os.fsdecode(b"run \xff\xfe"))
    yield fine("an empty part", put(**{_name(1, 2): partial(part, ())}))
    yield fine("unrelated files", beside)
    yield fine("one row", put(part=partial(part, [row()])), (row(),))
    yield fine("no lists", put(part=partial(part, ROWS[:-1])), ROWS[:-1])
    yield fine("only lists", put(part=partial(part, ROWS[-1:])), ROWS[-1:])
    yield fine("no dictionaries", put(part=partial(part, use_dictionary=False)))
    yield fine("no checksums", put(part=partial(part, write_page_checksum=False)))
    yield fine("no Arrow schema", put(part=partial(part, arrow_schema=False)))
    for codec in ("none", "snappy", "gzip", "lz4", "brotli"):
        yield fine(f"compressed by {codec}", put(part=partial(part, compression=codec)))
    yield fine("new pages", put(part=partial(part, data_page_version="2.0")))
    yield fine("an empty ledger", put(ledger='{"ledger": []}', findings='{"findings": []}', plan="{}"))
    yield fine("a link to the folder", _instead(_linked))
    nan = (row(value=float("inf")), row(1, value=0.0))
    yield fine("numbers that are not finite", put(part=partial(part, nan)), nan)
    missing = (row(0), (1, 0, "grads", "a.weight", "norm", None, None, None, None))
    yield fine("a number that is missing in one step", put(part=partial(part, missing)), missing)


def _linked(at: Path, outside: Path) -> None:
    real = at.with_name("real")
    real.mkdir()
    put()(real, outside)
    at.symlink_to(real)


def cases() -> list[Case]:
    """Return all cases, always in the same order."""
    makers = (
        innocents,
        schemas,
        values,
        descriptions,
        damaged,
        specials,
        replaced,
        hostile_names,
        documents,
        attempts,
        sizes,
    )
    return [case for make in makers for case in make()]
