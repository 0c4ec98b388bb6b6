"""The values of a plan: Action, When, Hook. Frozen, comparable, free of torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tenterhook.errors import PlanError, nearest
from tenterhook.plan.points import POINTS, Point
from tenterhook.plan.select import Selector

Phase = Literal["train", "eval", "any"]
OnError = Literal["raise", "mute"]

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.#-]{0,63}")


@dataclass(frozen=True, slots=True)
class Action:
    """A named action with its parameters, as data. What it does is looked up in a registry when it is attached."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", dict(self.params))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.params.items())})"

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.params)))


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The steps a hook is due in: from `start`, before `stop`, one in `every`."""

    every: int = 1
    start: int = 0
    stop: int | None = None
    #: None means training steps for observers, any for what may modify
    phase: Phase | None = None
    #: due only in the n steps after a trigger of the rig tripped
    after_trip: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("start", 0), ("stop", 0), ("after_trip", 1)):
            value = getattr(self, name)
            optional = name in ("stop", "after_trip")
            if value is None and optional:
                continue
            if type(value) is not int or value < least:
                raise PlanError(f"When({name}={value!r}): a whole number of at least {least} is wanted")
        if self.stop is not None and self.stop <= self.start:
            raise PlanError(f"When(start={self.start}, stop={self.stop}) is never due")
        if self.phase not in (None, "train", "eval", "any"):
            raise PlanError(f"When(phase={self.phase!r}): one of 'train', 'eval', 'any' is wanted")

    def due(self, step: int) -> bool:
        """Return True if a hook is due in this step, whatever the phase and trips."""
        if step < self.start or (self.stop is not None and step >= self.stop):
            return False
        return (step - self.start) % self.every == 0

    def next_change(self, step: int) -> int | None:
        """Return the first later step in which it may become due, or cease to be; None for never."""
        if self.after_trip is not None:
            return step + 1
        if step < self.start:
            return self.start
        if self.stop is not None and step >= self.stop:
            return None
        if self.every == 1:
            return self.stop
        return step + 1 if self.due(step) else step + self.every - (step - self.start) % self.every


ALWAYS = When()


@dataclass(frozen=True, slots=True)
class Hook:
    """One thing to observe or change: `do` this `at` that point `on` those targets."""

    id: str
    on: str | tuple[str, ...] = field(kw_only=True)
    at: str = field(kw_only=True)
    do: Action | Callable[..., Any] = field(kw_only=True)
    when: When = field(default=ALWAYS, kw_only=True)
    #: how many targets `on` must name
    expect: int | None = field(default=None, kw_only=True)
    #: None means "mute" for observers, "raise" for what may modify
    on_error: OnError | None = field(default=None, kw_only=True)
    selector: Selector = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise PlanError(
                f"{self.id!r} is not a hook id", remedy="use up to 64 letters, digits and _ . # -, not first a sign"
            )
        if not isinstance(self.at, str) or self.at not in POINTS:
            close = nearest(str(self.at), list(POINTS))
            raise PlanError(
                f"there is no point {self.at!r}" + (f"; the nearest is {close[0]!r}" if close else ""),
                hook=self.id,
                remedy="`tenterhook points` lists them",
            )
        on = (self.on,) if isinstance(self.on, str) or not isinstance(self.on, Iterable) else tuple(self.on)
        if not all(isinstance(p, str) for p in on):
            raise PlanError(f"on={self.on!r} is not a name or a list of names", hook=self.id, point=self.at)
        try:
            object.__setattr__(self, "selector", Selector(on))
        except PlanError as error:
            raise error.located(hook=self.id, point=self.at) from None
        object.__setattr__(self, "on", on[0] if len(on) == 1 else on)
        object.__setattr__(self, "do", self._action())
        if self.expect is not None and (type(self.expect) is not int or self.expect < 0):
            raise PlanError(f"expect={self.expect!r} is not a count", hook=self.id, point=self.at)
        if not isinstance(self.when, When):
            raise PlanError(f"when={self.when!r} is not a When", hook=self.id, remedy="write when=th.When(every=10)")
        if self.on_error not in (None, "raise", "mute"):
            raise PlanError(f"on_error={self.on_error!r}: 'raise' or 'mute' is wanted", hook=self.id)

    def _action(self) -> Action | Callable[..., Any]:
        if isinstance(self.do, Action):
            return self.do
        bare = getattr(self.do, "as_action", None)  # a registered action, named without being called
        if bare is not None:
            made: Action = bare()
            return made
        if not callable(self.do):
            raise PlanError(
                f"do={self.do!r} is neither an action nor a function",
                hook=self.id,
                point=self.at,
                remedy=f"a name stands in a file; here the action itself does: do=th.{self.do}()"
                if isinstance(self.do, str)
                else "give a function of the value, or an action such as th.clip_value(1.0)",
            )
        return self.do

    def __repr__(self) -> str:
        shown = {"on": repr(self.on), "at": repr(self.at), "do": self.doing}
        defaults = {"when": ALWAYS, "expect": None, "on_error": None}
        shown |= {k: repr(getattr(self, k)) for k, default in defaults.items() if getattr(self, k) != default}
        return f"Hook({self.id!r}, {', '.join(f'{k}={v}' for k, v in shown.items())})"

    @property
    def point(self) -> Point:
        return POINTS[self.at]

    @property
    def doing(self) -> str:
        """What it does, in a word or two."""
        return str(self.do) if isinstance(self.do, Action) else callable_name(self.do)


def callable_name(fn: Callable[..., Any]) -> str:
    """Return a function's qualified name, or the class of a callable object."""
    return str(getattr(fn, "__qualname__", None) or type(fn).__name__).replace("<locals>.", "")


def callable_place(fn: Callable[..., Any]) -> str:
    """Return file:line of a function, as far as it has one."""
    inner = getattr(fn, "func", fn)  # functools.partial
    inner = getattr(inner, "__func__", inner)
    call = getattr(type(inner), "__call__", None)  # noqa: B004 - its code is wanted, not whether it is there
    code = getattr(inner, "__code__", None) or getattr(call, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else type(fn).__module__
