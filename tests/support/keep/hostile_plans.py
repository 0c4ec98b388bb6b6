"""Make plans that must be refused: as JSON, as TOML, and inside a saved state."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import marshal
import pickle
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tests.support.keep.forger import state_of_plan

#: a module that leaves a trace if it is imported
CANARY = "tenterhook_canary"

Forms = Mapping[str, Callable[[], Any]]


@dataclass(frozen=True)
class Artefact:
    """Hold one hostile object in every possible form. The form decides which readers receive it."""

    name: str
    forms: Forms
    #: True if it is too large for the small sample
    heavy: bool = False


class Payload:
    """Run code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import {CANARY}",)


CODE = (
    f"{CANARY}.boom", f"{CANARY}:boom", f"{CANARY}.Boom()", f"__import__('{CANARY}')", f"exec('import {CANARY}')",
    "os.system", "builtins.eval", "torch.hub.load", f"<class '{CANARY}.Boom'>", f"$import {CANARY}",
    f"${{oc.env:{CANARY}}}", "{0.__class__.__init__.__globals__}", "%(__class__)s", f"f'{{{CANARY}}}'",
    f"lambda: __import__('{CANARY}')", f"https://localhost:1/{CANARY}.py", f"hf://{CANARY}/model",
    f"entry_points:{CANARY}", "file:///etc/passwd", f"!!python/object/apply:{CANARY}.boom",
)  # fmt: skip

#: ids that are paths, or that have a special meaning to a shell, a file system or a format string
PATHS = (
    "../../etc/passwd", "..", ".", "/etc/passwd", "a/b", "a\\b", "C:\\x", "C:x", "~root", "~", "-rf", "$HOME", "`id`",
    "$(id)", "a;b", "a|b", "a b", "", "a" * 65, "a\tb", "{a}", "%s", ".hidden", "é", "e\u0301", "\u202ea", "ａ",
)  # fmt: skip

#: regular expressions that take forever, and patterns that look like it
SELECTORS = (
    "(a+)+$", "re:(a+)+$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(x+x+)+y", "a{1,65535}{1,65535}", "(?P<x>a)(?P=x)",
    "[" * 200, "\\", "***", "a***b", "*a" * 100 + "!", "**a" * 60, "**.**." * 40 + "a", "*." * 120 + "a",
    "?" * 250, "!" * 250, "type:", "type:*", "type:" + "a." * 120, "!**", "", " ", ":" * 250, "**:**:**:x", "\u2028",
)  # fmt: skip


def plan(*hooks: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"tenterhook": 1, "hooks": list(hooks), **fields}


def hook(**fields: Any) -> dict[str, Any]:
    """Return a valid hook with some fields replaced."""
    return {"id": "a", "on": "**", "at": "grad", "do": {"scale": {"by": 2}}, **fields}


def plans() -> Iterator[Artefact]:
    for name, data in containers():
        yield Artefact(f"bytes: {name}", {"json": _always(data), "toml": _always(data)})
    for name, tree in [*_code(), *_ill_formed(), *_selectors(), *_crowds()]:
        yield Artefact(name, _forms(tree))
    for name, text in _texts():
        yield Artefact(name, {"json": _always(text), "restored": lambda text=text: state_of_plan(text)})
    for name, text in _toml_texts():
        yield Artefact(name, {"toml": _always(text)})
    for name, make in _bombs():
        yield Artefact(name, {"json": make, "toml": make}, heavy=True)


def containers() -> Iterator[tuple[str, bytes]]:
    """Yield files in formats that run code, or grow, when a program opens them."""
    honest = json.dumps(plan(hook())).encode()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield f"pickle {protocol}", pickle.dumps(Payload(), protocol)
    yield "pickle of a plan", pickle.dumps(plan(hook()))
    yield "pickle in base64", base64.b64encode(pickle.dumps(Payload()))
    yield "pickle in a JSON string", json.dumps(pickle.dumps(Payload(), 0).decode()).encode()
    yield "marshal", marshal.dumps(compile(f"import {CANARY}", "x", "exec"))
    yield "pyc", b"\xa7\r\r\n" + bytes(12) + marshal.dumps(compile(f"import {CANARY}", "x", "exec"))
    yield (
        "npy of objects",
        b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }" + b" " * 58,
    )
    yield "source", f"import {CANARY}\n{CANARY}.boom()\n".encode()
    yield "shell", b"#!/bin/sh\ntouch canary\n"
    yield "ELF", b"\x7fELF\x02\x01\x01" + bytes(57)
    yield "yaml", f"!!python/object/apply:{CANARY}.boom []\n".encode()
    yield "yaml of aliases", b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n"
    yield "xml of entities", b'<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><x>&b;</x>'
    yield "ini", b"[loggers]\nkeys=root\n[handler_h]\nclass=StreamHandler\nargs=(__import__('os'),)\n"
    yield "gzip of a plan", gzip.compress(honest, mtime=0)
    yield "zlib of a plan", zlib.compress(honest)
    yield "bz2 of a plan", bz2.compress(honest)
    yield "xz of a plan", lzma.compress(honest)
    yield "zip of a plan", _zipped("plan.json", honest)
    yield "zip bomb", _zipped("plan.json", b" " * (1 << 24))
    yield "torch.save", _saved(Payload())
    yield "torch.save of a plan", _saved(plan(hook()))
    yield "safetensors", b'2\0\0\0\0\0\0\0{"__metadata__":{"_target_":"os.system"},"a":{}}' + b"  "
    yield "msgpack of a plan", b"\x82\xaatenterhook\x01\xa5hooks\x90"
    yield "parquet", b"PAR1" + bytes(20) + b"PAR1"
    yield "hdf5", b"\x89HDF\r\n\x1a\n" + bytes(56)
    yield "nothing", b""
    yield "zeros", bytes(64)


def _zipped(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def _saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _code() -> Iterator[tuple[str, Any]]:
    """Yield plans with names of code wherever a plan can have a string."""
    places: dict[str, Callable[[str], Any]] = {
        "an action": lambda s: plan(hook(do={s: {}})),
        "a bare action": lambda s: plan(hook(do=s)),
        "a number": lambda s: plan(hook(do={"clip_value": {"max": s}})),
        "a whole number": lambda s: plan(hook(do={"noise": {"std": 1, "seed": s}})),
        "a choice": lambda s: plan(hook(do={"clip_norm": {"max": 1, "over": s}})),
        "a tensor": lambda s: plan(hook(on="head", at="output", do={"steer": {"by": s}})),
        "a parameter's name": lambda s: plan(hook(do={"scale": {"by": 1, s: 1}})),
        "a second action": lambda s: plan(hook(do={"scale": {"by": 1}, s: {}})),
        "a selector": lambda s: plan(hook(on=s)),
        "a type": lambda s: plan(hook(on=f"type:{s}")),
        "a point": lambda s: plan(hook(at=s)),
        "a phase": lambda s: plan(hook(when={"phase": s})),
        "a count": lambda s: plan(hook(when={"every": s})),
        "a policy": lambda s: plan(hook(on_error=s)),
        "a version": lambda s: plan(hook(), tenterhook=s),
        "a field of a hook": lambda s: plan(hook(**{s: 1})),
        "a field of the plan": lambda s: plan(hook(), **{s: {}}),
        "_target_": lambda s: plan(hook(do={"_target_": {"_target_": s}})),
        "class": lambda s: plan(hook(**{"class": s})),
        "py/object": lambda s: plan({"py/object": s}),
    }
    for place, build in places.items():
        for text in CODE:
            yield f"code as {place}: {text}", build(text)
    for text in (*PATHS, *(code for code in CODE if not code.replace("_", "").replace(".", "").isalnum())):
        yield f"a path as an id: {text!r}", plan(hook(id=text))


def _selectors() -> Iterator[tuple[str, Any]]:
    for text in SELECTORS:
        yield f"selector {text[:20]!r} of {len(text)}", plan(hook(on=text))
        yield f"selectors {text[:20]!r} of {len(text)}", plan(hook(on=[text, f"x.{text}"]))
    yield "selector of 257", plan(hook(on="a" * 257))
    yield "selectors none", plan(hook(on=[]))
    yield "selectors 1025", plan(hook(on=["**.a"] * 1025))
    yield "selectors 1024 that name nothing", plan(hook(on=[f"*a*b*c{i}" for i in range(1024)]))
    yield "selectors that are long and many", plan(hook(on=["*a" * 120 + "x"] * 200))


def _crowds() -> Iterator[tuple[str, Any]]:
    """Yield plans with very many items, but within the allowed size of a text."""
    yield "1025 hooks", plan(*(hook(id=f"a{i}", do="x") for i in range(1025)))
    yield "600 hooks of unknown actions", plan(*(hook(id=f"a{i}", do={f"scal{i}": {}}) for i in range(600)))
    yield "600 hooks that name nothing", plan(*(hook(id=f"a{i}", on=f"first.weigh{i}") for i in range(600)))
    yield "300 hooks of ten patterns", plan(*(hook(id=f"a{i}", on=[f"*a*{i}*{j}" for j in range(10)], expect=9)
                                              for i in range(300)))  # fmt: skip
    yield "2000 parameters", plan(hook(do={"scale": {f"k{i}": 1 for i in range(2000)}}))
    yield "2000 numbers", plan(hook(do={"scale": {"by": list(range(2000))}}))
    yield "a long action", plan(hook(do={"a" * 60000: {}}))
    yield "a long parameter", plan(hook(do={"clip_norm": {"max": 1, "over": "a" * 60000}}))
    yield "a long name of a parameter", plan(hook(do={"scale": {"a" * 60000: 1}}))
    yield "a long name of a tensor", plan(hook(on="head", at="output", do={"steer": {"by": "a" * 60000}}))
    yield "a long point", plan(hook(at="a" * 60000))
    yield "a long id", plan(hook(id="a" * 60000))
    yield "a long field", plan(hook(**{"a" * 60000: 1}))
    yield "nested 17 deep", plan(hook(do={"scale": {"by": _nested(15)}}))


def _nested(depth: int) -> Any:
    return [_nested(depth - 1)] if depth else 1


def _ill_formed() -> Iterator[tuple[str, Any]]:
    """Yield plans with unknown fields, wrong types, numbers out of range or other versions."""
    wrong: dict[str, tuple[Any, ...]] = {
        "id": (1, None, [], {}, True, ["a"]),
        "on": (1, None, {}, True, [1], [["**"]], [None], {"**": 1}),
        "at": (1, None, [], {}, True, ["grad"], "GRAD", "grad ", "Grad", "nowhere"),
        "do": (1, None, [], {}, True, ["scale"], {"scale": 1}, {"scale": None}, {"scale": []}, {"scale": "by"},
               {"scale": {}}, {"": {}}, "", {"scale": {"by": 1, "to": 2}}),
        "when": (1, [], "always", True, {"never": 1}, {"every": "2"}, {"every": True}, {"every": 1.5}, {"every": 0},
                 {"every": -1}, {"every": None}, {"start": -1}, {"start": "0"}, {"stop": 0}, {"stop": -1},
                 {"start": 5, "stop": 5}, {"phase": 1}, {"phase": "Train"}, {"after_trip": 0}, {"after_trip": "1"},
                 {"every": 1 << 54}, {"start": 1 << 64}, {"stop": 10**30}),
        "expect": ("1", True, 1.5, -1, [], {}, 1 << 54, 10**30, 7),
        "on_error": (1, True, [], "ignore", "Raise", ""),
    }  # fmt: skip
    for field, values in wrong.items():
        for value in values:
            yield f"{field} is {value!r}", plan(hook(**{field: value}))
    for value in ("2", True, None, [1], {}, [[1]], {"a": 1}, 10**30, -(10**30)):
        yield f"a number is {value!r}", plan(hook(do={"scale": {"by": value}}))
    for value in (0, -1, "1", True):
        yield f"a positive number is {value!r}", plan(hook(do={"clip_value": {"max": value}}))
    for field in ("id", "on", "at", "do"):
        yield f"no {field}", plan({k: v for k, v in hook().items() if k != field})
    for version in (0, 2, -1, 1 << 64, "1", True, None, 1.5, [1]):
        yield f"version {version!r}", plan(hook(), tenterhook=version)
    yield "no version", {"hooks": [hook()]}
    yield "no hooks", {"tenterhook": 1, "hooks": None}
    yield "hooks in a dict", {"tenterhook": 1, "hooks": {"a": hook()}}
    yield "a hook that is a list", plan([1])  # type: ignore[arg-type]
    yield "one id twice", plan(hook(), hook())
    for field in ("__reduce__", "__class__", "__proto__", "$ref", "import", "extends", "params", "ID", "on "):
        yield f"unknown field {field}", plan(hook(**{field: {}}))


def _texts() -> Iterator[tuple[str, bytes]]:
    """Yield texts that are not valid JSON."""
    honest = json.dumps(plan(hook()), sort_keys=True, separators=(",", ":")).encode()
    for cut in range(0, len(honest), 7):
        yield f"JSON cut at {cut}", honest[:cut]
    for name, tail in {"NUL": b"\0", "brace": b"}", "itself": honest, "comma": b",", "comment": b"//x"}.items():
        yield f"JSON, then {name}", honest + tail
    for name, head in {"BOM": b"\xef\xbb\xbf", "NUL": b"\0", "XSSI": b")]}',\n", "comment": b"/*x*/"}.items():
        yield f"{name}, then JSON", head + honest
    for encoding in ("utf-16", "utf-16-le", "utf-32", "utf-7", "cp037"):
        yield f"JSON in {encoding}", honest.decode().encode(encoding) if encoding != "utf-7" else b"+" + honest
    for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80", b"\xf0\x9f"):
        yield f"not UTF-8: {bad!r}", honest.replace(b"**", b"**" + bad)
    for code in (0, 1, 7, 8, 0xB, 0xC, 0x1B, 0x1F, 0x7F):
        yield f"raw U+{code:04X}", honest.replace(b"**", b"**" + bytes([code]))
        yield f"escaped U+{code:04X}", honest.replace(b"**", b"**\\u%04x" % code)
    for half in (b"\\ud800", b"\\udfff", b"\\udc00\\ud800", b"\\ud800x"):
        yield f"half a pair {half!r}", honest.replace(b"**", b"**" + half)
    for number in (
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"-1e999",
        b"9007199254740993",
        b"1" * 400,
        b"1" * 5000,
        b"1" + b"0" * 5000 + b".5",
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"0x1",
        b"1_0",
        b"1e",
        b"--1",
        b"nan",
    ):
        yield f"the number {number[:20]!r} of {len(number)}", honest.replace(b":2}", b":" + number + b"}")
    for name, old, new in (
        ("plan", b"{", b'{"tenterhook":1,'), ("hook", b'{"at"', b'{"at":"grad","at"'),
        ("escaped", b'{"at"', b'{"\\u0061t":"grad","at"'), ("action", b'{"scale"', b'{"scale":{"by":1},"scale"'),
        ("parameter", b'{"by"', b'{"by":1,"by"'), ("parameter, escaped", b'{"by"', b'{"b\\u0079":1,"by"'),
    ):  # fmt: skip
        yield f"a key twice in the {name}", honest.replace(old, new, 1)
    for name, text in {"'": honest.replace(b'"', b"'"), ",}": honest.replace(b"}]", b",}]"), "None": b"None",
                       "bare keys": honest.replace(b'"id"', b"id"), "two lines": honest + b"\n" + honest, "list": b"[]",
                       "true": b"true", "string": b'"a"', "number": b"1", "null": b"null"}.items():  # fmt: skip
        yield f"not JSON: {name}", text


def _toml_texts() -> Iterator[tuple[str, bytes]]:
    honest = b'tenterhook = 1\n[[hook]]\nid = "a"\non = "**"\nat = "grad"\ndo = {scale = {by = 2}}\n'
    for cut in range(1, len(honest) - 1, 9):
        if cut != 15:  # this is a valid plan, without hooks
            yield f"TOML cut at {cut}", honest[:cut]
    for value in (b"nan", b"inf", b"-inf", b"1e999", b"9007199254740993", b"0x" + b"f" * 300, b"1" * 5000, b"[1", b"{",
                  b"{a.b", b"1979-05-27", b"1979-05-27T07:32:00Z", b"07:32:00", b'"""a"""', b"'''a'''"):  # fmt: skip
        yield f"TOML value {value[:20]!r} of {len(value)}", honest.replace(b"by = 2", b"by = " + value)
    for line in (b"tenterhook = 1", b"[hook]", b"hook = []", b"[[hook.do]]", b"[hook.do.scale]\nby = 3", b'id = "b"',
                 b'"id" = "b"', b'do.scale.by = 3', b"a." * 40 + b"b = 1", b"a = " + b"[" * 40, b"\x00", b"\x1b",
                 b"\xff", b"= 1", b"[]", b"[[]]", b'x = "\\ud800"', b'x = "\\u0000"', b"[tool.x]\ny = 1"):  # fmt: skip
        yield f"TOML and {line[:24]!r} of {len(line)}", honest + line + b"\n"
    for name, text in {"tables": b"[a]\n" * 4000, "dots": b"a." * 8000 + b"b=1", "quotes": b'"' * 16000,
                       "brackets": b"x = " + b"[" * 15000, "braces": b"x = " + b"{a=" * 5000, "keys": b"a" * 16000,
                       "headers": b"".join(b"[a%d.b.c.d.e.f]\n" % i for i in range(800)),
                       "lines": b"\n" * 16000 + b"x", "comments": b"#" * 16000, "strings": b"x = '''" + b"'" * 16000,
                       "multi": b'x = """' + b'""\\' * 5000, "arrays": b"x = [" + b"1," * 8000}.items():  # fmt: skip
        yield f"12 KB of TOML {name}", text[: 12 << 10]


def _bombs() -> Iterator[tuple[str, Callable[[], bytes]]]:
    for size in (1 << 20, 1 << 25, 1 << 27):
        yield f"{size >> 20} MiB of spaces", lambda size=size: b" " * size
        yield f"{size >> 20} MiB of brackets", lambda size=size: b"[" * size
        yield f"{size >> 20} MiB of empty lists", lambda size=size: b"[" + b"[]," * (size // 3)
        yield f"{size >> 20} MiB of quotes", lambda size=size: b'"' * size
        yield f"{size >> 20} MiB of a number", lambda size=size: b"1" * size
        yield f"{size >> 20} MiB of hooks", lambda size=size: b'{"tenterhook":1,"hooks":[' + b"{}," * (size // 3)
        yield f"{size >> 20} MiB that is not UTF-8", lambda size=size: b"\xff" * size
    for name, piece in {"brackets": b"[", "braces": b'{"a":', "empty lists": b"[],", "quotes": b'"', "escapes": b'\\"',
                        "keys": b'"a":', "commas": b",", "colons": b":", "backslashes": b"\\", "digits": b"9",
                        "letters": b"a", "empty objects": b"{},", "pairs": b'"\\ud83d\\ude00",'}.items():  # fmt: skip
        yield f"64 KiB of {name}", lambda piece=piece: b"[" + (piece * (1 << 16))[: (1 << 16) - 1]


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _forms(tree: Any) -> Forms:
    forms = {"json": lambda: json.dumps(tree).encode(), "restored": lambda: state_of_plan(tree)}
    return {**forms, "toml": lambda: toml(tree).encode()} if _speakable(tree) else forms


def toml(tree: Mapping[str, Any]) -> str:
    """Convert the tree of a plan to TOML, where the key of the hooks is `hook`."""
    return "\n".join(f"{_key('hook' if k == 'hooks' else k)} = {_toml(v)}" for k, v in tree.items())


def _speakable(tree: Any) -> bool:
    """Return True if TOML can express a value; it has no null."""
    if isinstance(tree, dict):
        return all(_speakable(v) for v in tree.values())
    return all(_speakable(v) for v in tree) if isinstance(tree, list) else tree is not None


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)


def _key(name: str) -> str:
    return json.dumps(name)
