"""Store what the auditor found, once for each hook and cause."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["error", "warning", "note"]

#: code of a hook on a module that was not called
UNCALLED = "TH708"

#: the codes of imbalances, with their titles and severities
TITLES: dict[str, tuple[str, Severity]] = {
    "TH701": ("an optimizer steps a parameter without the hook that selects it", "error"),
    "TH702": ("a gradient arrived at a parameter without the hook that selects it", "error"),
    "TH703": ("a hook does not act on a part of the model that it selects", "error"),
    "TH704": ("no part of the model matches the hook's selector any more", "warning"),
    "TH705": ("no tap with this name has run", "warning"),
    "TH706": ("an optimizer steps, but the step is not counted", "warning"),
    "TH707": ("a parameter changed, but no optimizer step was seen for it", "note"),
    UNCALLED: ("a module that the hook selects was not called", "warning"),
    "TH709": ("replicas of the model are not equal, or cannot be compared", "error"),
    "TH710": ("a hook was captured in a CUDA graph, which runs without Python", "error"),
}

#: remedy for a difference that only a fault in tenterhook, or code that removes hooks of others, can cause
ATTACH_AGAIN = "attach again; if no other code of the program removes hooks, report a fault of tenterhook"


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Describes a difference between the ledger and the model.

    Args:
        code: The code of the finding, such as `TH701`.
        cause: Why there is a difference.
        remedy: What to do.
        hook: Id of the hook.
        point: Point of the hook.
        target: The first target at which the difference was found.
        targets: All targets at which it was found.
        severity: `"error"`, `"warning"` or `"note"`.
    """

    code: str
    cause: str
    remedy: str
    hook: str
    point: str
    target: str | None = None
    targets: frozenset[str] = frozenset()
    severity: Severity = "error"

    @property
    def title(self) -> str:
        """Return what the code means."""
        return TITLES[self.code][0]

    @property
    def evidence(self) -> str:
        """Return the cause, with the number of targets."""
        return f"{self.cause} ({len(self.targets)} targets)" if len(self.targets) > 1 else self.cause

    def __str__(self) -> str:
        on = f" on {self.target!r}" if self.target is not None else ""
        place = f"hook {self.hook!r} at {self.point}{on}"
        return f"{self.code}: {self.title}. {place}: {self.evidence}\n  remedy: {self.remedy}"


Key = tuple[str, str, str]


def key_of(one: Imbalance) -> Key:
    """Return what makes an imbalance one of its kind: the code, the hook and the cause."""
    return one.code, one.hook, one.cause


class Imbalances:
    """The differences that an auditor has found. Each hook and cause is reported once."""

    def __init__(self) -> None:
        self._found: dict[Key, Imbalance] = {}

    def __iter__(self) -> Iterator[Imbalance]:
        return iter(self._found.values())

    def forget(self, hook: str) -> None:
        """Remove the differences of a hook."""
        self._found = {key: one for key, one in self._found.items() if one.hook != hook}

    def add(self, new: list[Imbalance]) -> None:
        """Add the differences that one look found, and warn of those that are new and not notes."""
        fresh: dict[Key, None] = {}
        for one in new:
            key = key_of(one)
            known = self._found.get(key)
            if known is None:
                fresh[key] = None
                known = one
            targets = known.targets | one.targets | ({one.target} if one.target is not None else set())
            self._found[key] = replace(known, targets=targets)
        for key in fresh:
            found = self._found[key]
            if found.severity != "note":
                warnings.warn(f"tenterhook {found}", RuntimeWarning, stacklevel=2)
