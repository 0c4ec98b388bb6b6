"""Hooks as text: JSON and TOML in, canonical JSON out. What a plan demands of its hooks is checked by Plan itself.

A text is data from elsewhere. It is scanned once, in linear time, for what a decoder would let pass (size, depth,
duplicate keys, odd characters), then decoded into closed types; nothing it says is ever imported or run.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from tenterhook.errors import PlanError, PlanFileError
from tenterhook.plan.hook import ALWAYS, Action, Hook, OnError, Phase, When, callable_place

FORMAT = 1
#: so small that the worst text of that size is refused within 50 ms
MAX_BYTES = 1 << 16
#: TOML is read by Python, and by people
MAX_TOML = 12 << 10
#: strings and brackets in a text
MAX_PARTS = 1 << 15
MAX_DEPTH = 16
#: values among one hook's parameters; what is larger is a tensor's
MAX_VALUES = 1024
MAX_INTEGER = 1 << 53

#: a string, with the colon that makes it a key, or a bracket
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*+"?)(?:[ \t\n\r]*+(:))?+|[{}\[\]]', re.DOTALL)
#: strings and comments whole, so that what stands in them does not count; possessive, so that it stays linear
_TOML_TOKEN = re.compile(
    r'''"""(?:[^"\\]|\\.|"{1,2}(?!"))*+"{0,5}|\'\'\'(?:[^']|'{1,2}(?!'))*+'{0,5}'''
    r"""|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|#[^\n]*+|[\[\]{}.=,\n]""",
    re.DOTALL,
)
#: escapes that may stand for a forbidden character
_ESCAPED = re.compile(r"\\[ubf]")
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


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
    """Read hooks from the JSON text of a plan."""
    raw = _text(text, MAX_BYTES)
    _scan_json(raw)
    try:
        read = msgspec.json.decode(raw, type=_Plan)
    except msgspec.MsgspecError as error:
        raise _other_format_of(raw) or _not_a_plan(str(error)) from None
    return _hooks(read.tenterhook, read.hooks)


def from_toml(text: str | bytes) -> list[Hook]:
    """Read hooks from the TOML text of a plan."""
    raw = _text(text, MAX_TOML)
    _scan_depth(raw)
    try:
        tree = tomllib.loads(raw)
        read = msgspec.convert(tree, type=_Toml)
    except (ValueError, msgspec.MsgspecError) as error:
        raise _not_a_plan(str(error), "in TOML: tenterhook = 1, then a [[hook]] table for each hook") from None
    except RecursionError:
        raise PlanFileError(f"the text is nested deeper than {MAX_DEPTH}") from None
    return _hooks(read.tenterhook, read.hook)


def open_text(path: Path) -> tuple[Callable[[bytes], list[Hook]], bytes]:
    """Read a .json or .toml file; return what parses it, and its bytes."""
    parsers: dict[str, Callable[[bytes], list[Hook]]] = {".json": from_json, ".toml": from_toml}
    if path.suffix not in parsers:
        raise PlanFileError(f"{path.name} is neither .json nor .toml", remedy="name the file by what is in it")
    try:
        with path.open("rb") as file:
            return parsers[path.suffix], file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PlanFileError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise PlanFileError(f"{path}: {error}") from None


def to_json(hooks: Iterable[Hook]) -> str:
    """Write the canonical JSON text of a plan of these hooks."""
    plan = {"tenterhook": FORMAT, "hooks": [_as_json(hook) for hook in hooks]}
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if len(text.encode()) > MAX_BYTES:
        raise PlanFileError(f"the text is longer than {MAX_BYTES} bytes")
    return text


def _as_json(hook: Hook) -> dict[str, Any]:
    """Return a hook as JSON has it, defaults left out; raise if its function has no name."""
    if not isinstance(hook.do, Action):
        name = re.sub(r"\W", "_", getattr(hook.do, "__name__", "mine")).strip("_") or "mine"
        raise PlanError(
            f"its function at {callable_place(hook.do)} has no name that a file could keep",
            hook=hook.id,
            point=hook.at,
            remedy=f'register it: put @th.action("{"mine" if name == "lambda" else name}") above a def',
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
        raise PlanFileError(f"do names {len(read.do)} actions", hook=read.id, remedy="one hook, one action")
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
        at=read.at,
        do=Action(name, params),
        when=when,
        expect=read.expect,
        on_error=read.on_error,
    )


def _parameters(do: dict[str, Any], hook: str) -> Any:
    """Return what a hook does, with its parameters as JSON can carry them; raise if they are too many."""
    count = 0
    pending: list[Any] = [do]
    while pending:
        inside = pending.pop()
        values = list(inside.values()) if isinstance(inside, dict) else inside
        count += len(values)
        if count > MAX_VALUES:
            raise PlanFileError(
                f"it has more than {MAX_VALUES} parameters",
                hook=hook,
                remedy="name a tensor, and give it by attach(..., tensors=...)",
            )
        pending += [v for v in values if isinstance(v, dict | list | tuple)]
    return _value(do, hook, 4)


def _value(value: Any, hook: str, depth: int = 1) -> Any:
    """Return a value as JSON can carry it. Whole floats become integers, so that 1 and 1.0 are one plan."""
    if depth > MAX_DEPTH and isinstance(value, list | tuple | dict):
        raise PlanFileError(f"a parameter is nested deeper than {MAX_DEPTH}", hook=hook)
    if isinstance(value, str) and _FORBIDDEN.search(value):
        raise PlanFileError("a parameter has a control character", hook=hook)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            shown = value if value.bit_length() < 100 else f"of {value.bit_length()} bits"
            raise PlanFileError(f"the number {shown} is past 2^53", hook=hook)
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise PlanFileError(f"the number {value} is not finite", hook=hook)
        return int(value) if value.is_integer() and abs(value) <= MAX_INTEGER else value
    if isinstance(value, list | tuple):
        return [_value(v, hook, depth + 1) for v in value]
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {_value(k, hook): _value(v, hook, depth + 1) for k, v in value.items()}
    raise PlanFileError(f"a {type(value).__name__} cannot be a parameter", hook=hook, remedy="use JSON's own types")


def _other_format(version: int) -> PlanFileError:
    return PlanFileError(f"the plan is of format {version}; this tenterhook reads format {FORMAT}")


def _other_format_of(text: str) -> PlanFileError | None:
    """Return the error for a plan of another format, whose fields this one may not know; None if it is of this."""
    try:
        version = msgspec.json.decode(text, type=_Version).tenterhook
    except msgspec.MsgspecError:
        return None
    return None if version == FORMAT else _other_format(version)


def _not_a_plan(reason: str, remedy: str = 'a plan reads {"tenterhook": 1, "hooks": [...]}') -> PlanFileError:
    return PlanFileError(f"not a plan: {reason}", remedy=remedy)


def _text(raw: str | bytes, max_bytes: int) -> str:
    """Return a text that is neither too long nor has forbidden characters, or raise."""
    if not isinstance(raw, str | bytes):
        raise PlanFileError(
            f"a {type(raw).__name__} is not a text", remedy="give the plan as text, or th.Plan.load(path)"
        )
    if len(raw) > max_bytes or (isinstance(raw, str) and len(raw.encode("utf-8", "surrogatepass")) > max_bytes):
        remedy = f"a plan in JSON may have {MAX_BYTES}" if max_bytes < MAX_BYTES else None
        raise PlanFileError(f"the text is longer than {max_bytes} bytes", remedy=remedy)
    if isinstance(raw, bytes):
        try:
            raw = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise PlanFileError(f"the text is not UTF-8 at byte {error.start}") from None
    if raw.startswith("\ufeff"):
        raise PlanFileError("the text begins with a byte order mark", remedy="save it as UTF-8 without one")
    if found := _FORBIDDEN.search(raw):
        raise PlanFileError(f"the text has the character U+{ord(found[0]):04X} at {found.start()}")
    return raw


def _scan_json(text: str) -> None:
    """Check depth and duplicate keys; a decoder silently takes the last of two keys."""
    open_keys: list[set[str]] = []
    for count, token in enumerate(_TOKEN.finditer(text)):
        if count == MAX_PARTS:
            raise PlanFileError(f"the text has more than {MAX_PARTS} strings and brackets")
        string, colon = token.groups()
        if string is None:
            if token[0] in "{[":
                open_keys.append(set())
                if len(open_keys) > MAX_DEPTH:
                    raise PlanFileError(f"the text is nested deeper than {MAX_DEPTH}")
            elif open_keys:
                open_keys.pop()
            continue
        escaped = "\\" in string
        if escaped and _ESCAPED.search(string) and _FORBIDDEN.search(_unquoted(string)):
            raise PlanFileError(f"the text has an escaped control character at {token.start()}")
        if colon and open_keys:
            key = _unquoted(string) if escaped else string[1:-1]
            if key in open_keys[-1]:
                raise PlanFileError(f"the key {key!r} stands twice at {token.start(2)}")
            open_keys[-1].add(key)


def _unquoted(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        raise _not_a_plan(f"the string {token[:40]} is malformed") from None


def _scan_depth(text: str) -> None:
    """Check brackets and dotted keys of TOML; its parser takes time and stack for each."""
    depth = dots = 0
    for token in _TOML_TOKEN.finditer(text):
        mark = token[0]
        if mark == ".":
            dots += 1
        elif mark in "[]{}=,\n":
            dots = 0
            depth = max(0, depth + (mark in "[{") - (mark in "]}"))
        if max(depth, dots) > MAX_DEPTH:
            raise PlanFileError(f"the text is nested deeper than {MAX_DEPTH}")
