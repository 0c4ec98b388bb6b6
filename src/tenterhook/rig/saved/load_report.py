"""Report the differences between a saved state and the rig that loads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tenterhook.errors import MismatchError, brief, nearest
from tenterhook.rig.saved.renaming import Renaming

Kind = Literal["hook", "action", "target", "tensor", "state", "clock"]
#: maximum number of printed lines, and of printed notes
MOST = 20
#: maximum number of printed characters per line
MOST_TOLD = 300
#: maximum number of additional targets named in a line
ALSO = 4
#: maximum number of names among which the nearest name is searched
CANDIDATES = 200
#: maximum number of rules in a proposed renaming
RULES = 4

LOAD_REST = "pass strict=False to load what fits"
OTHER_MODEL = (
    "no target fits; load the state into the model that it was saved for, or pass rename= if only names changed"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference that was found between a saved state and the rig.

    Args:
        kind: What differs: `"hook"`, `"action"`, `"target"`, `"tensor"`, `"state"` or `"clock"`.
        fact: A description of the difference.
        hook: Id of the hook, or None.
        target: Name of the target, or None.
        remedy: How to resolve the difference, or None if there is no specific remedy.
    """

    kind: Kind
    fact: str
    hook: str | None = None
    target: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        place = [f"hook {self.hook!r}"] if self.hook is not None else []
        place += [f"on {brief(repr(self.target))}"] if self.target is not None else []
        fact = brief(self.fact, MOST_TOLD)
        return f"{' '.join(place)}: {fact}" if place else fact


@dataclass(slots=True)
class LoadReport:
    """A list of the differences between a saved state and the rig that loads it.

    A report is truthy if it contains a difference. `rig.load_state_dict()` returns the report, which is also available
    as `rig.loaded` and as the `report` attribute of a `MismatchError`.

    Args:
        differences: Differences that cause state to be lost or missing. With `strict=True`, any difference raises an
            error.
        notes: Other changes that do not prevent loading, such as changed plan parameters or versions.
        found: False if the checkpoint contains no hook state.
        renaming: A `rename=` argument, as code, that would rename every lost target to a target on the model, or None.
        fits: Number of saved targets that fit the model, counted once for each hook.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1, bias=False)
        >>> saved = th.watch(model).state_dict()
        >>> report = th.watch(other).load_state_dict(saved, strict=False)
        >>> [(one.hook, one.target, one.fact) for one in report.differences]
        [('grads', 'bias', 'saved, but not on this model')]
    """

    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    found: bool = True
    renaming: str | None = None
    fits: int = 0

    def add(
        self, kind: Kind, fact: str, *, hook: str | None = None, target: str | None = None, remedy: str | None = None
    ) -> None:
        """Add a difference.

        Args:
            kind: What differs.
            fact: A description of the difference.
            hook: Id of the hook.
            target: Name of the target.
            remedy: How to resolve the difference.
        """
        self.differences.append(Difference(kind, fact, hook, target, remedy))

    def __bool__(self) -> bool:
        return bool(self.differences)

    def __str__(self) -> str:
        lines = self._lines()
        said = [f"  {line}" for line in lines[:MOST]]
        if len(lines) > MOST:
            said.append(f"  ... and {len(lines) - MOST} more lines")
        said += [f"  note: {brief(note, MOST_TOLD)}" for note in self.notes[:MOST]]
        if len(self.notes) > MOST:
            said.append(f"  ... and {len(self.notes) - MOST} more notes")
        count = len(self.differences)
        head = f"{count} difference{'s' if count != 1 else ''}" if count else "all of the state was loaded"
        head = head if self.found else "nothing was loaded"
        return "\n".join([head, *said])

    def _lines(self) -> list[str]:
        """Return the differences as lines. Differences with the same hook and the same fact share a line."""
        groups: dict[tuple[str | None, str, bool], list[Difference]] = {}
        for one in self.differences:
            groups.setdefault((one.hook, one.fact, one.target is None), []).append(one)
        lines = []
        for first, *others in groups.values():
            also = ", ".join(brief(repr(o.target)) for o in others[:ALSO])
            also += f" and {len(others) - ALSO} more" if len(others) > ALSO else ""
            lines.append(f"{first}; also on {also}" if also else str(first))
        return lines

    def missing(self, hook: str, lost: Sequence[tuple[str, str]], new: Sequence[str], fits: Sequence[str] = ()) -> None:
        """Report a hook's targets that are only in the saved state or only on the model, and propose a renaming.

        Args:
            hook: Id of the hook.
            lost: Targets that are only in the saved state, each with its name after renaming.
            new: Targets that are only on the model.
            fits: Targets that are both in the saved state and on the model.
        """
        pool, pairs = list(new[:CANDIDATES]), []
        for old, name in lost:
            close = nearest(name, pool, 1) if pool and len(self.differences) < MOST else []
            fact = "saved, but not on this model" if old == name else f"saved, but this model has no target {name!r}"
            self.add("target", fact + (f"; the nearest is {close[0]!r}" if close else ""), hook=hook, target=old)
            if close and old == name:
                pairs.append((name, close[0]))
        if self.renaming is None:
            self.renaming = _renaming(pairs, [name for _, name in lost], new, fits)
        for name in new:
            self.add("target", "on this model, but not saved", hook=hook, target=name)

    def refuse(self) -> None:
        """Raise an error if there is a difference.

        Raises:
            MismatchError: There is a difference.
        """
        if not self.differences:
            return
        others = dict.fromkeys(one.remedy for one in self.differences if one.remedy)
        told = ", ".join([*others, f"pass {self.renaming}"] if self.renaming else others)
        remedy = f"{told}, or {LOAD_REST}" if told else LOAD_REST
        if not told and not self.fits and any(one.kind == "target" for one in self.differences):
            remedy = OTHER_MODEL
        raise MismatchError(f"the saved state does not fit: {self}", report=self, remedy=remedy)


def _renaming(
    pairs: Sequence[tuple[str, str]], lost: Sequence[str], new: Sequence[str], fits: Sequence[str]
) -> str | None:
    """Return a few rules that map every lost name to a name on the model, or None if no such rules are found.

    The rules must not change names that already fit.
    """
    rules = dict(_rule(old, close) for old, close in pairs)
    if not rules or len(rules) > RULES:
        return None
    renaming = Renaming(rules)
    renamed = {renaming(name) for name in lost}
    if len(renamed) < len(lost) or not renamed <= set(new) or any(renaming(name) != name for name in fits):
        return None
    return f"rename={json.dumps(rules, ensure_ascii=False)}"


def _rule(old: str, new: str) -> tuple[str, str]:
    """Return the shortest rule that maps one name to the other.

    The rule omits an ending that both names share, and replaces a shared number with `*`.
    """
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
