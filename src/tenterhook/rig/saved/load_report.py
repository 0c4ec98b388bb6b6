"""What differs between a saved state and the rig it is to go into."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tenterhook.errors import MismatchError, brief, nearest
from tenterhook.rig.saved.renaming import Renaming

Kind = Literal["hook", "action", "target", "tensor", "state", "clock"]
#: differences that are written out before the rest is counted
MOST = 20
#: characters of one that are shown
MOST_TOLD = 300
#: targets named in one line
ALSO = 4
#: names looked through for the nearest
CANDIDATES = 200
#: rules in a proposal
RULES = 4


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was saved."""

    kind: Kind
    fact: str
    hook: str | None = None
    target: str | None = None
    #: what to do about it, where that is not to take what fits
    remedy: str | None = None

    def __str__(self) -> str:
        place = [f"hook {self.hook!r}"] if self.hook is not None else []
        place += [f"on {brief(repr(self.target))}"] if self.target is not None else []
        fact = brief(self.fact, MOST_TOLD)
        return f"{' '.join(place)}: {fact}" if place else fact


@dataclass(slots=True)
class LoadReport:
    """Every difference, and what is worth knowing beside them. True if there is a difference."""

    differences: list[Difference] = field(default_factory=list)
    #: no obstacles: the plan's parameters, versions, threads
    notes: list[str] = field(default_factory=list)
    #: whether there was a state to load
    found: bool = True
    #: a rename that would settle missing targets, as a line of code
    renaming: str | None = None

    def add(
        self, kind: Kind, fact: str, *, hook: str | None = None, target: str | None = None, remedy: str | None = None
    ) -> None:
        self.differences.append(Difference(kind, fact, hook, target, remedy))

    def __bool__(self) -> bool:
        return bool(self.differences)

    def __str__(self) -> str:
        lines = self._lines()
        said = [f"  {line}" for line in lines[:MOST]]
        if len(lines) > MOST:
            said.append(f"  ... and {len(lines) - MOST} lines more")
        said += [f"  note: {brief(note, MOST_TOLD)}" for note in self.notes[:MOST]]
        if len(self.notes) > MOST:
            said.append(f"  ... and {len(self.notes) - MOST} notes more")
        count = len(self.differences)
        head = f"{count} difference{'s' if count != 1 else ''}" if count else "all of the state was loaded"
        head = head if self.found else "nothing was loaded"
        return "\n".join([head, *said])

    def _lines(self) -> list[str]:
        """Targets of one hook of which the same is to be said stand in one line."""
        groups: dict[tuple[str | None, str, bool], list[Difference]] = {}
        for one in self.differences:
            groups.setdefault((one.hook, one.fact, one.target is None), []).append(one)
        lines = []
        for first, *others in groups.values():
            also = ", ".join(brief(repr(o.target)) for o in others[:ALSO])
            also += f" and {len(others) - ALSO} more" if len(others) > ALSO else ""
            lines.append(f"{first}; likewise {also}" if also else str(first))
        return lines

    def missing(self, hook: str, lost: Sequence[tuple[str, str]], new: Sequence[str], fits: Sequence[str] = ()) -> None:
        """Targets of a hook that were saved (with what they were renamed to) and are not here, and the other way round.

        `fits` are those that are on both sides.
        """
        pool, pairs = list(new[:CANDIDATES]), []
        for old, name in lost:
            close = nearest(name, pool, 1) if pool and len(self.differences) < MOST else []
            fact = "saved, but not here" if old == name else f"saved, but not here as {name!r}"
            self.add("target", fact + (f"; the nearest is {close[0]!r}" if close else ""), hook=hook, target=old)
            if close and old == name:
                pairs.append((name, close[0]))
        if self.renaming is None:
            self.renaming = _renaming(pairs, [name for _, name in lost], new, fits)
        for name in new:
            self.add("target", "here, but not saved", hook=hook, target=name)

    def refuse(self) -> None:
        """Raise, if there is a difference."""
        if not self.differences:
            return
        others = dict.fromkeys(one.remedy for one in self.differences if one.remedy)
        told = ", ".join([*others, self.renaming] if self.renaming else others)
        remedy = f"{told}, or strict=False, which loads what fits" if told else "strict=False loads what fits"
        raise MismatchError(f"the saved state does not fit: {self}", report=self, remedy=remedy)


def _renaming(
    pairs: Sequence[tuple[str, str]], lost: Sequence[str], new: Sequence[str], fits: Sequence[str]
) -> str | None:
    """A few rules that bring every lost name to one that is here, and leave the others; None if that takes many."""
    rules = dict(_rule(old, close) for old, close in pairs)
    if not rules or len(rules) > RULES:
        return None
    renaming = Renaming(rules)
    renamed = {renaming(name) for name in lost}
    if len(renamed) < len(lost) or not renamed <= set(new) or any(renaming(name) != name for name in fits):
        return None
    return f"rename={json.dumps(rules, ensure_ascii=False)}"


def _rule(old: str, new: str) -> tuple[str, str]:
    """The shortest rename that turns one into the other: without what they share at the end, a shared number as *."""
    if new.endswith(f".{old}"):
        return "*", new.removesuffix(old) + "*"
    if old.endswith(f".{new}"):
        return old.removesuffix(new) + "*", "*"
    before, after = old.split("."), new.split(".")
    while len(before) > 1 and len(after) > 1 and before[-1] == after[-1]:
        before.pop()
        after.pop()
    for i, (one, other) in enumerate(zip(before, after)):
        if one == other and one.isdecimal():
            before[i] = after[i] = "*"
    return ".".join(before), ".".join(after)
