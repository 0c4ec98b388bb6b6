"""Suggest what to write instead of a selector that matches nothing in the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import nn

from tenterhook.errors import nearest
from tenterhook.plan import ROOT, Hook
from tenterhook.plan.select import Selector
from tenterhook.resolve.targets import Target

#: characters of regular expressions that no pattern has
_REGULAR = frozenset("\\^$|+?()[]")
#: maximum number of names in a suggestion
MOST = 5


def suggest(hook: Hook, wanted: str, candidates: Mapping[str, Target], others: Mapping[str, Target]) -> str:
    """Return what to write instead of a pattern that matches nothing.

    Args:
        hook: The hook whose selector matches nothing.
        wanted: The pattern, or all patterns of the hook.
        candidates: The targets at the point of the hook.
        others: The modules and parameters of the model.
    """
    kind = " or ".join(hook.point.on)
    classes = sorted({type(o).__name__ for t in others.values() if isinstance(o := t.owner(), nn.Module)})
    if wanted.startswith("type:"):
        close = nearest(wanted.removeprefix("type:"), classes) or classes[:3]
        return f"use a class of the model, such as {', '.join(repr(f'type:{one}') for one in close)}"
    if wanted in others and kind == "module":
        return f"name the module {wanted.rpartition('.')[0] or '.'!r}, or use a parameter point such as grad"
    if kind == "parameter" and any(hook.selector.matches(name) for name in others):
        return f"to select the parameters of the module, write {f'{wanted}.**'.removeprefix('..')!r}"
    if wanted in classes:
        return f"to select by class, write {f'type:{wanted}'!r}"
    if len(hook.selector.patterns) == 1:
        several = [part for part in re.split(r"[|,\s]+", wanted.strip("()[] ")) if part]
        if len(several) > 1 and all(_count(part, candidates) for part in several):
            return f"write several patterns as a list: on={several!r}"
    return _other_form(wanted, kind, candidates) or _near_name(wanted, kind, candidates)


def _other_form(wanted: str, kind: str, candidates: Mapping[str, Target]) -> str | None:
    """Suggest the pattern that an index in brackets or a regular expression means."""
    indexed = re.sub(r"\[(\d+)\]", r".\1", wanted)
    if indexed != wanted and _count(indexed, candidates):
        return f"write {indexed!r}: the name has a dot before the index"
    if not set(wanted) & _REGULAR:
        return None
    pattern = _as_pattern(wanted)
    count = _count(pattern, candidates) if pattern else 0
    found = f"write {pattern!r}, which matches {_counted(count, kind)}; " if count else ""
    return f"{found}a pattern is not a regular expression: * matches within a part of a name, ** across parts"


def _near_name(wanted: str, kind: str, candidates: Mapping[str, Target]) -> str:
    """Suggest a name or a pattern of the model that is similar."""
    if any(name.endswith(f".{wanted}") for name in candidates):
        return f"write {f'**.{wanted}'!r} to select every {kind} whose name ends with it"
    first, rest = wanted.partition(".")[0], wanted.partition(".")[2]
    tops = list(dict.fromkeys(name.partition(".")[0] for name in candidates if name != ROOT))
    if "*" in wanted and "*" not in first and first not in tops:
        for top in nearest(first, tops):
            if count := _count(f"{top}.{rest}", candidates):
                return f"write {f'{top}.{rest}'!r}, which matches {_counted(count, kind)}"
        more = ", ..." if len(tops) > MOST else ""
        return f"begin with a name of the model: {', '.join(map(repr, tops[:MOST]))}{more}"
    if tail := wanted.rpartition("*")[2].strip(".") if "*" in wanted else "":
        head = wanted.partition("*")[0]
        ends = [".".join(n.split(".")[-tail.count(".") - 1 :]) for n in candidates if n.startswith(head)]
        if close := nearest(tail, ends, 1):
            return _with_end(wanted.removesuffix(tail) + close[0], f"{head}**.{close[0]}", kind, candidates)
    close = nearest(wanted, candidates)
    if not close and "." not in wanted and (ends := nearest(wanted, [n.rpartition(".")[2] for n in candidates], 1)):
        pattern = f"**.{ends[0]}"
        return f"write {pattern!r}, which matches {_counted(_count(pattern, candidates), kind)}"
    return f"use one of the nearest names: {', '.join(map(repr, close))}" if close else f"name an existing {kind}"


def _with_end(same: str, deeper: str, kind: str, candidates: Mapping[str, Target]) -> str:
    """Suggest a pattern with a corrected end. Cross parts only if nothing matches otherwise."""
    if count := _count(same, candidates):
        return f"write {same!r}, which matches {_counted(count, kind)}"
    found = _counted(_count(deeper, candidates), kind)
    return f"write {deeper!r}, which matches {found}; ** crosses parts, * does not"


def _as_pattern(expression: str) -> str:
    """Return the pattern that means the same as a simple regular expression, or an empty text."""
    pattern = expression.strip("^$").replace("\\.", "\0")
    for theirs, ours in ((".*", "**"), (".+", "**"), ("\\d+", "*"), ("\\d", "*"), ("\\w+", "*"), ("[0-9]+", "*")):
        pattern = pattern.replace(theirs, ours)
    pattern = pattern.replace("\0", ".")
    return "" if set(pattern) & _REGULAR or "***" in pattern else pattern


def _count(pattern: str, names: Iterable[str]) -> int:
    """Return the number of names that a pattern matches."""
    return sum(map(Selector((pattern,)).matches, names))


def _counted(count: int, kind: str) -> str:
    return f"{count} {kind}{'s' * (count != 1)}"
