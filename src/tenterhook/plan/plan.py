"""Plan: an ordered tuple of hooks, with its ways to a text and back.

The reader and writer are imported when they are first used: they load msgspec, and many programs write plans in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tenterhook.errors import PlanError
from tenterhook.plan.hook import Hook

MAX_HOOKS = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """An ordered tuple of hooks. Two plans of one digest mean the same."""

    hooks: tuple[Hook, ...] = ()

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        hooks = tuple(hooks)
        object.__setattr__(self, "hooks", hooks)
        if len(hooks) > MAX_HOOKS:
            raise PlanError(f"the plan has {len(hooks)} hooks, the most is {MAX_HOOKS}")
        seen: set[str] = set()
        for hook in hooks:
            if not isinstance(hook, Hook):
                raise PlanError(f"{hook!r} is not a Hook", remedy='write th.Hook("id", on=..., at=..., do=...)')
            if hook.id in seen:
                raise PlanError("the id stands twice in the plan", hook=hook.id, remedy="give each hook its own id")
            seen.add(hook.id)

    def __iter__(self) -> Iterator[Hook]:
        return iter(self.hooks)

    def __len__(self) -> int:
        return len(self.hooks)

    def __getitem__(self, id: str) -> Hook:
        for hook in self.hooks:
            if hook.id == id:
                return hook
        raise KeyError(id)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        import hashlib

        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Return the canonical text: sorted keys, no white space, defaults left out."""
        from tenterhook.plan import files

        return files.to_json(self.hooks)

    @staticmethod
    def from_json(text: str | bytes) -> Plan:
        """Read a plan from JSON text."""
        from tenterhook.plan import files

        return Plan(files.from_json(text))

    @staticmethod
    def from_toml(text: str | bytes) -> Plan:
        """Read a plan from TOML text."""
        from tenterhook.plan import files

        return Plan(files.from_toml(text))

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a .json or .toml file."""
        from tenterhook.plan import files

        path = Path(path)
        parse, text = files.open_text(path)
        try:
            return Plan(parse(text))
        except PlanError as error:
            error.fact = f"{path}: {error.fact}"
            raise
