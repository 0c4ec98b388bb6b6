"""Read hooks from JSON and TOML, and write them as canonical JSON. `Plan` checks the rules that apply across hooks.

The text may come from an untrusted source. It is first scanned, in linear time, for problems that a decoder would
accept: excessive size or depth, duplicate keys and control characters. It is then decoded into types that forbid
unknown fields. Nothing in the text is imported or run.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import msgspec

from tenterhook.errors import PlanError, PlanFileError, nearest_file
from tenterhook.plan.hook import ALWAYS, Action, Hook, OnError, Phase, When, callable_place
from tenterhook.plan.points import PointName
from tenterhook.plan.text_errors import explain

FORMAT = 1
#: maximum size of a JSON text; a text of this size is refused within 50 ms even in the worst case
MAX_BYTES = 1 << 16
#: maximum size of a TOML text; smaller than for JSON, because TOML is parsed in Python, which is slow
MAX_TOML = 12 << 10
#: maximum number of strings and brackets in a JSON text
MAX_PARTS = 1 << 15
MAX_DEPTH = 16
#: maximum number of values in the parameters of one hook; larger data must be passed as a tensor
MAX_VALUES = 1024
MAX_INTEGER = 1 << 53

#: matches a bracket, or a string together with the colon after it if the string is a key
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*+"?)(?:[ \t\n\r]*+(:))?+|[{}\[\]]', re.DOTALL)
#: matches one mark, or a whole string or comment, so that brackets inside strings and comments are not counted;
#: possessive quantifiers keep the time linear
_TOML_TOKEN = re.compile(
    r'''"""(?:[^"\\]|\\.|"{1,2}(?!"))*+"{0,5}|\'\'\'(?:[^']|'{1,2}(?!'))*+'{0,5}'''
    r"""|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|#[^\n]*+|[\[\]{}.=,\n]""",
    re.DOTALL,
)
#: escape sequences that may produce a forbidden character
_ESCAPED = re.compile(r"\\[ubf]")
#: control characters, marks that change the direction of text, line separators and surrogates
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class _When(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    every: int = 1
    start: int = 0
    stop: int | None = None
    phase: Phase | None = None
    after_trip: int | None = None


class _Hook(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    id: str
    on: str | list[str]
    at: str
    do: str | dict[str, dict[str, Any]]
    when: _When | None = None
    expect: int | None = None
    on_error: OnError | None = None


class _Plan(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    tenterhook: int
    hooks: list[_Hook]


class _Version(msgspec.Struct, frozen=True):
    tenterhook: int


class _Toml(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    tenterhook: int
    hook: list[_Hook] = []


def from_json(text: str | bytes) -> list[Hook]:
    """Read the hooks of a plan from JSON text."""
    raw = _text(text, MAX_BYTES)
    _scan_json(raw)
    try:
        read = msgspec.json.decode(raw, type=_Plan)
    except msgspec.MsgspecError as error:
        raise _other_format_of(raw) or _not_a_plan(raw, error) from None
    return _hooks(read.tenterhook, read.hooks)


def from_toml(text: str | bytes) -> list[Hook]:
    """Read the hooks of a plan from TOML text."""
    raw = _text(text, MAX_TOML)
    _scan_depth(raw)
    tree: dict[str, Any] | None = None
    try:
        tree = tomllib.loads(raw)
        read = msgspec.convert(tree, type=_Toml)
    except (ValueError, msgspec.MsgspecError) as error:
        raise explain(error, raw, tree, toml=True) from None
    except RecursionError:
        raise PlanFileError(f"the text is nested deeper than {MAX_DEPTH} levels") from None
    return _hooks(read.tenterhook, read.hook)


def open_text(path: Path) -> tuple[Callable[[bytes], list[Hook]], bytes]:
    """Read a .json or .toml file, and return its parser and its content."""
    parsers: dict[str, Callable[[bytes], list[Hook]]] = {".json": from_json, ".toml": from_toml}
    if path.is_dir():
        inside = sorted(str(one) for one in path.iterdir() if one.suffix in parsers)[:5]
        remedy = f"pass a file, such as {', '.join(inside)}" if inside else "pass a plan file in JSON or TOML"
        raise PlanFileError(f"{path} is a folder, not a plan file", remedy=remedy)
    if path.suffix not in parsers:
        raise PlanFileError(
            f"{path} is neither .json nor .toml",
            remedy="write the plan as JSON or TOML, and name the file accordingly",
        )
    try:
        with path.open("rb") as file:
            return parsers[path.suffix], file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        close = nearest_file(path)
        remedy = f"pass the nearest file, {close}" if close else "pass the path of a plan file in JSON or TOML"
        raise PlanFileError(f"{path} does not exist", remedy=remedy) from None
    except OSError as error:
        remedy = "pass a plan file that this process can read"
        raise PlanFileError(f"{path}: {error.strerror}", remedy=remedy) from None
    except ValueError as error:
        raise PlanFileError(f"{path}: {error}") from None


def to_json(hooks: Iterable[Hook]) -> str:
    """Return the canonical JSON text of a plan with these hooks."""
    plan = {"tenterhook": FORMAT, "hooks": [_as_json(hook) for hook in hooks]}
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if len(text.encode()) > MAX_BYTES:
        raise PlanFileError(f"the text is longer than {MAX_BYTES} bytes")
    return text


def _as_json(hook: Hook) -> dict[str, Any]:
    """Return a hook as a JSON object that omits default values. Raise an error if the action is not registered."""
    if not isinstance(hook.do, Action):
        name = re.sub(r"\W", "_", getattr(hook.do, "__name__", "mine")).strip("_") or "mine"
        raise PlanError(
            f"the function at {callable_place(hook.do)} is not registered, so a plan file cannot refer to it",
            hook=hook.id,
            point=hook.at,
            remedy=f'register the function: write @th.action("{"mine" if name == "lambda" else name}", modifies=True) '
            "above its def; leave out modifies=True if it returns nothing",
        )
    on = hook.on if isinstance(hook.on, str) else list(hook.on)
    fields: dict[str, Any] = {"id": hook.id, "on": on, "at": hook.at}
    fields["do"] = _parameters({hook.do.name: dict(hook.do.params)}, hook.id)
    if hook.when != ALWAYS:
        changed = [f for f in _When.__struct_fields__ if getattr(hook.when, f) != getattr(ALWAYS, f)]
        fields["when"] = {f: _value(getattr(hook.when, f), hook.id) for f in changed}
    for name in ("expect", "on_error"):
        if getattr(hook, name) is not None:
            fields[name] = _value(getattr(hook, name), hook.id)
    return fields


def _hooks(version: int, hooks: list[_Hook]) -> list[Hook]:
    if version != FORMAT:
        raise _other_format(version)
    return [_make_hook(h) for h in hooks]


def _make_hook(read: _Hook) -> Hook:
    if isinstance(read.do, str):
        name, params = _value(read.do, read.id), {}
    elif len(read.do) != 1:
        raise PlanFileError(
            f"`do` names {len(read.do)} actions", hook=read.id, remedy="name exactly one action in each hook"
        )
    else:
        ((name, params),) = _parameters(read.do, read.id).items()
    _value(read.expect, read.id)
    when = ALWAYS
    if read.when is not None:
        fields = {f: getattr(read.when, f) for f in _When.__struct_fields__}
        try:
            when = When(**_value(fields, read.id))
        except PlanError as error:
            raise error.located(hook=read.id) from None
    return Hook(
        read.id,
        on=read.on if isinstance(read.on, str) else tuple(read.on),
        at=cast(PointName, read.at),  # Hook checks it
        do=Action(name, params),
        when=when,
        expect=read.expect,
        on_error=read.on_error,
    )


def _parameters(do: dict[str, Any], hook: str) -> Any:
    """Return the action and its parameters as JSON values. Raise an error if there are too many values."""
    count = 0
    pending: list[Any] = [do]
    while pending:
        inside = pending.pop()
        values = list(inside.values()) if isinstance(inside, dict) else inside
        count += len(values)
        if count > MAX_VALUES:
            raise PlanFileError(
                f"the parameters contain more than {MAX_VALUES} values",
                hook=hook,
                remedy="replace the values with the name of a tensor, and pass that tensor to attach(..., tensors=...)",
            )
        pending += [v for v in values if isinstance(v, dict | list | tuple)]
    return _value(do, hook, 4)


def _value(value: Any, hook: str, depth: int = 1) -> Any:
    """Convert a value to a JSON value. Whole-number floats become integers, so 1 and 1.0 have the same digest."""
    if depth > MAX_DEPTH and isinstance(value, list | tuple | dict):
        raise PlanFileError(f"a parameter is nested deeper than {MAX_DEPTH} levels", hook=hook)
    if isinstance(value, str) and _FORBIDDEN.search(value):
        raise PlanFileError("a parameter contains a control character", hook=hook)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            shown = value if value.bit_length() < 100 else f"with {value.bit_length()} bits"
            raise PlanFileError(f"the number {shown} is not within ±2^53", hook=hook)
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise PlanFileError(f"the number {value} is not finite", hook=hook)
        return int(value) if value.is_integer() and abs(value) <= MAX_INTEGER else value
    if isinstance(value, list | tuple):
        return [_value(v, hook, depth + 1) for v in value]
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {_value(k, hook): _value(v, hook, depth + 1) for k, v in value.items()}
    raise PlanFileError(f"a parameter cannot have type {type(value).__name__}", hook=hook, remedy="use a JSON type")


def _other_format(version: int) -> PlanFileError:
    shown = version if abs(version) <= MAX_INTEGER else "a number with too many digits"  # Python refuses to print it
    return PlanFileError(f"the plan has format {shown}, but this version of tenterhook reads format {FORMAT}")


def _other_format_of(text: str) -> PlanFileError | None:
    """Return the error to raise if the plan has a different format, or None if it does not.

    A plan in a different format may have fields that this version does not define. The decoder then fails before the
    format is checked.
    """
    try:
        version = msgspec.json.decode(text, type=_Version).tenterhook
    except msgspec.MsgspecError:
        return None
    return None if version == FORMAT else _other_format(version)


def _not_a_plan(text: str, error: msgspec.MsgspecError) -> PlanFileError:
    """Return the error to raise for a JSON text. The decoder may report a wrong field before it finds wrong syntax."""
    try:
        tree = msgspec.json.decode(text)
    except msgspec.DecodeError as malformed:
        return explain(malformed, text, None, toml=False)
    return explain(error, text, tree, toml=False)


def _text(raw: str | bytes, max_bytes: int) -> str:
    """Return the text as a string. Raise an error if it is too long or contains forbidden characters."""
    if not isinstance(raw, str | bytes):
        raise PlanFileError(
            f"a plan cannot be read from an object of type {type(raw).__name__}",
            remedy="pass the plan as str or bytes, or read a file with th.Plan.load(path)",
        )
    if len(raw) > max_bytes or (isinstance(raw, str) and len(raw.encode("utf-8", "surrogatepass")) > max_bytes):
        remedy = f"write the plan as JSON, which may have up to {MAX_BYTES} bytes" if max_bytes < MAX_BYTES else None
        raise PlanFileError(f"the text is longer than {max_bytes} bytes", remedy=remedy)
    if isinstance(raw, bytes):
        try:
            raw = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise PlanFileError(f"the text is not valid UTF-8 at byte {error.start}") from None
    if raw.startswith("\ufeff"):
        raise PlanFileError(
            "the text begins with a byte order mark", remedy="save the file as UTF-8 without a byte order mark"
        )
    if found := _FORBIDDEN.search(raw):
        raise PlanFileError(
            f"the text contains the forbidden character U+{ord(found[0]):04X} at position {found.start()}"
        )
    return raw


def _scan_json(text: str) -> None:
    """Check the depth, and refuse duplicate keys, because a decoder silently uses only the last duplicate."""
    open_keys: list[set[str]] = []
    for count, token in enumerate(_TOKEN.finditer(text)):
        if count == MAX_PARTS:
            raise PlanFileError(f"the text has more than {MAX_PARTS} strings and brackets")
        string, colon = token.groups()
        if string is None:
            if token[0] in "{[":
                open_keys.append(set())
                if len(open_keys) > MAX_DEPTH:
                    raise PlanFileError(f"the text is nested deeper than {MAX_DEPTH} levels")
            elif open_keys:
                open_keys.pop()
            continue
        escaped = "\\" in string
        if escaped and _ESCAPED.search(string) and _FORBIDDEN.search(_unquoted(string)):
            raise PlanFileError(f"the text contains an escaped control character at position {token.start()}")
        if colon and open_keys:
            key = _unquoted(string) if escaped else string[1:-1]
            if key in open_keys[-1]:
                raise PlanFileError(f"the key {key!r} occurs twice, the second time at position {token.start(2)}")
            open_keys[-1].add(key)


def _unquoted(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        raise PlanFileError(f"the string {token[:40]} is malformed", remedy="correct its quotes and escapes") from None


def _scan_depth(text: str) -> None:
    """Check the depth of brackets and dotted keys in TOML, because the TOML parser recurses at each level."""
    depth = dots = 0
    for token in _TOML_TOKEN.finditer(text):
        mark = token[0]
        if mark == ".":
            dots += 1
        elif mark in "[]{}=,\n":
            dots = 0
            depth = max(0, depth + (mark in "[{") - (mark in "]}"))
        if max(depth, dots) > MAX_DEPTH:
            raise PlanFileError(f"the text is nested deeper than {MAX_DEPTH} levels")
