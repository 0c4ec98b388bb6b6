"""Explain why a text is not a plan: name the hook and the field, and say what to write instead."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tenterhook.errors import PlanFileError, nearest

#: a value for each field that is valid, as an example
_EXAMPLES: dict[str, Any] = {
    "tenterhook": 1,
    "id": "clip",
    "on": "**",
    "at": "grad_final",
    "do": "stats",
    "when": {"every": 10},
    "expect": 2,
    "on_error": "mute",
    "every": 10,
    "start": 0,
    "stop": 100,
    "phase": "train",
    "after_trip": 10,
}
_CHOICES = {"phase": ("train", "eval", "any"), "on_error": ("raise", "mute")}
_TYPES = {
    "int": "a whole number",
    "float": "a number with a fraction",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "null": "null",
}
#: the first parameter of each action that needs one
_FIRST = {
    "scale": "by",
    "clip_value": "max",
    "clip_norm": "max",
    "clip_adaptive": "ratio",
    "clip_zscore": "z",
    "mask": "by",
    "reverse": "by",
    "noise": "std",
    "nan_to_num": "nan",
    "steer": "by",
    "spike": "z",
}
_REQUIRED = ("id", "on", "at", "do")
_HOOK = ("id", "on", "at", "do", "when", "expect", "on_error")
_WHEN = ("every", "start", "stop", "phase", "after_trip")
_PATH = re.compile(r" - at `\$(.*)`$")
_IN_HOOK = re.compile(r"\.hooks?\[(\d+)\](.*)")


def explain(error: Exception, text: str, tree: Any, *, toml: bool) -> PlanFileError:
    """Return the error to raise for a text that is not a plan.

    Args:
        error: What the decoder raised.
        text: The text.
        tree: The decoded text, or None if its syntax is wrong.
        toml: True for TOML, False for JSON.
    """
    if tree is None:
        return _wrong_syntax(error, text, toml=toml)
    path = _PATH.search(str(error))
    reason, where = str(error)[: path.start()] if path else str(error), path[1] if path else ""
    inside = _IN_HOOK.fullmatch(where)
    found, hook, order, parts = None, None, "", re.findall(r"\w+|\[\.\.\.\]", where)
    if inside:
        found = tree["hook" if toml else "hooks"][int(inside[1])]
        hook = _id_of(found)
        order = "" if hook else f"hook {int(inside[1]) + 1} of the text: "
        parts = re.findall(r"[A-Za-z_]\w*|\[\.\.\.\]", inside[2])
    fact, remedy = _explained(reason, parts, found, toml=toml)
    return PlanFileError(
        fact if inside and hook else f"the text is not a plan: {order}{fact}", hook=hook, remedy=remedy
    )


def _explained(reason: str, parts: list[str], hook: Any, *, toml: bool) -> tuple[str, str]:
    """Return what is wrong and what to write, as texts. `hook` is the decoded hook, or None outside of hooks."""
    in_hook = hook is not None
    named = re.search(r"field `(.*)`", reason)
    if named and "unknown" in reason:
        kind, fields = _container(parts, in_hook, toml=toml)
        if fields is _HOOK and named[1] in _WHEN:
            inside = {named[1]: _EXAMPLES[named[1]]}
            return f"{kind} has no field {named[1]!r}", f"write {_written('when', inside, toml=toml)}"
        close = nearest(named[1], fields, 1)
        missing = [field for field in _REQUIRED if field not in hook] if fields is _HOOK else []
        if not close and len(missing) == 1:
            return f"{kind} has no field {named[1]!r}", f"write {missing[0]!r} instead"
        remedy = f"write {close[0]!r}" if close else f"remove it; the fields are {', '.join(fields)}"
        return f"{kind} has no field {named[1]!r}", remedy
    if named:
        return f"the field {named[1]!r} is missing", _frame(toml=toml) if not in_hook else _add(named[1], toml=toml)
    if not parts:
        return _words(reason, toml=toml), _frame(toml=toml)
    field = parts[-1]
    if parts[0] == "do" and len(parts) > 1:
        name, value = next((k, v) for k, v in hook["do"].items() if not isinstance(v, dict))
        written = _written("do", {name: {_FIRST.get(name, "PARAMETER"): value}}, toml=toml)
        return f"the parameter of {name!r} has no name", f"write {written}"
    if field in _CHOICES:
        choices = " or ".join(_written(field, one, toml=toml) for one in _CHOICES[field])
        return f"{'.'.join(parts)}: {_words(reason, toml=toml)}", f"write {choices}"
    if field in ("hook", "hooks"):
        return f"{field}: {_words(reason, toml=toml)}", _frame(toml=toml)
    unquoted = "got `str`" in reason and "int" in reason.partition("got")[0]
    quotes = ", without quotes" if unquoted else ""
    remedy = f"write a value such as {_written(field, _EXAMPLES[field], toml=toml)}{quotes}"
    return f"{'.'.join(parts)}: {_words(reason, toml=toml)}", remedy


def _container(parts: list[str], in_hook: bool, *, toml: bool) -> tuple[str, tuple[str, ...]]:
    """Return what has the unknown field, and the fields that it may have."""
    if not in_hook:
        return "a plan", ("tenterhook", "hook" if toml else "hooks")
    return ("`when`", _WHEN) if parts else ("a hook", _HOOK)


def _words(reason: str, *, toml: bool) -> str:
    """Return a decoder's reason in words: the types of Python are not those of the text."""
    types = {**_TYPES, "object": "a table" if toml else "an object"}
    found = re.fullmatch(r"Expected `(.*)`, got `(.*)`", reason)
    if not found:
        return reason.replace("Invalid enum value", "unknown value")
    wanted = " or ".join(types.get(one, one) for one in found[1].split(" | ") if one != "null" or not toml)
    return f"the value must be {wanted}, but it is {types.get(found[2], found[2])}"


def _frame(*, toml: bool) -> str:
    return (
        "write `tenterhook = 1`, then a [[hook]] table for each hook"
        if toml
        else 'write {"tenterhook": 1, "hooks": [...]}'
    )


def _add(field: str, *, toml: bool) -> str:
    remedy = f"add {_written(field, _EXAMPLES[field], toml=toml)}"
    return f"{remedy}, or another point; `tenterhook points` lists them" if field == "at" else remedy


def _written(field: str, value: Any, *, toml: bool) -> str:
    """Return a field and its value as they are written in the text."""
    if not toml:
        return f'"{field}": {msgspec.json.encode(value).decode().replace(":", ": ")}'
    return f"{field} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _id_of(hook: Any) -> str | None:
    """Return the id of a decoded hook, or None if it has none."""
    id = hook.get("id") if isinstance(hook, dict) else None
    return id if isinstance(id, str) and id else None


def _wrong_syntax(error: Exception, text: str, *, toml: bool) -> PlanFileError:
    """Explain a text that is neither JSON nor TOML. Its author may have passed the path of a file."""
    if re.fullmatch(r"[^\n{}=]{1,500}\.(json|toml)", text.strip()):
        remedy = f"read the file with th.Plan.load({text.strip()!r})"
        return PlanFileError(f"the text is not a plan: it is the path {text.strip()!r}", remedy=remedy)
    if not text.strip():
        return PlanFileError("the text is not a plan: it is empty", remedy=_frame(toml=toml))
    place = re.search(r" ?\((?:at line (\d+), column (\d+)|byte (\d+)|at end of document)\)$", str(error))
    reason = str(error)[: place.start()] if place else str(error)
    line = _line_of(text, place)
    quoted = f" at line {line[0]}: {line[1]}" if line else " at its end"
    name = "TOML" if toml else "JSON"
    return PlanFileError(
        f"the text is not valid {name}{quoted} ({_first_lower(reason)})", remedy=_syntax_remedy(reason, line, toml=toml)
    )


def _line_of(text: str, place: re.Match[str] | None) -> tuple[int, str] | None:
    """Return the number and the content of the line at which a decoder stopped."""
    if place is None or not (place[1] or place[3]):
        return None
    number = int(place[1]) if place[1] else text.encode()[: int(place[3])].count(b"\n") + 1
    return number, text.split("\n")[number - 1].strip()[:80]


def _syntax_remedy(reason: str, line: tuple[int, str] | None, *, toml: bool) -> str:
    key = re.match(r"([\w.-]+)\s*=\s*([^\"'\[{].*)", line[1]) if line and toml else None
    if key and reason == "Invalid value":
        return f'write text in quotes: {key[1]} = "{key[2].strip()}"'
    if "trailing comma" in reason:
        return "remove the comma before the closing bracket"
    if "truncated" in reason:
        return "close every bracket and quotation mark"
    if "keys must be strings" in reason:
        return 'write keys and text in double quotes, as in "on"'
    return "correct this line" if line else "correct the text"


def _first_lower(text: str) -> str:
    return text.removeprefix("JSON is malformed: ")[:1].lower() + text.removeprefix("JSON is malformed: ")[1:]
