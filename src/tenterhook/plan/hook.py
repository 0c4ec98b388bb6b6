"""Define the immutable values that a plan consists of: Action, When and Hook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from typing import Any, Literal, TypeVar

from tenterhook.errors import PlanError, nearest
from tenterhook.plan.points import POINTS, Point, PointName, unknown_point
from tenterhook.plan.select import Selector

Phase = Literal["train", "eval", "any"]
OnError = Literal["raise", "mute"]
T = TypeVar("T")

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.#-]{0,63}")


@dataclass(frozen=True, slots=True)
class Action:
    """A call of a registered action, stored as data: a name and parameters.

    Functions such as `stats` and `clip_norm` return an `Action`. `attach` looks up the code by name.

    Args:
        name: Name under which the action is registered.
        params: Parameters of the action by name. The mapping is copied.
        tensors: Tensors that the parameters name. An action such as `th.steer(tensor)` fills this in.

    Example:
        >>> import tenterhook as th
        >>> action = th.scale(2.0)
        >>> action == th.Action("scale", {"by": 2.0}), str(action)
        (True, 'scale(by=2.0)')
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    #: tensors that were passed themselves, by the names that `params` has for them
    tensors: Mapping[str, Any] = field(default_factory=dict, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", dict(self.params))
        object.__setattr__(self, "tensors", dict(self.tensors))

    def _named_after(self, hook: str) -> Action:
        """Return the action with names for its tensors that are unique in the plan: `hook.parameter`."""
        names = {name: f"{hook}.{name}" for name in self.tensors if "." not in name}
        if not names:
            return self
        params = {k: names.get(k, v) for k, v in self.params.items()}
        return Action(self.name, params, tensors={names.get(n, n): t for n, t in self.tensors.items()})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Action):
            return NotImplemented
        same = self.tensors.keys() == other.tensors.keys()
        return (
            (self.name, self.params) == (other.name, other.params)
            and same
            and all(self.tensors[name] is other.tensors[name] for name in self.tensors)
        )

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.params.items())})"

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.params)))


def _explains_arguments(example: str) -> Callable[[type[T]], type[T]]:
    """Let a dataclass refuse unknown and missing arguments with a remedy. The TypeError of Python has none."""

    def decorate(cls: type[T]) -> type[T]:
        init: Any = cls.__init__

        @wraps(init)
        def explained(self: T, *args: Any, **given: Any) -> None:
            try:
                init(self, *args, **given)
            except TypeError:
                if problem := _wrong_arguments(cls, args, given, example):
                    raise problem from None
                raise

        cls.__init__ = explained  # type: ignore[assignment, method-assign]
        return cls

    return decorate


def _wrong_arguments(cls: type[Any], args: tuple[Any, ...], given: Mapping[str, Any], example: str) -> PlanError | None:
    """Return the error for arguments that do not fit the fields of a dataclass, or None if they fit."""
    name, accepted = cls.__name__, {f.name: f for f in fields(cls) if f.init}
    unknown = next((one for one in given if one not in accepted), None)
    if unknown is not None:
        close = nearest(unknown, accepted, 1)
        remedy = f"write {close[0]}=" if close else f"its arguments are {', '.join(accepted)}"
        return PlanError(f"{name} has no argument {unknown!r}", remedy=remedy)
    unnamed = [f.name for f in accepted.values() if not f.kw_only]
    if len(args) > len(unnamed):
        return PlanError(f"{name} received {args[len(unnamed)]!r} without a name", remedy=f"write {example}")
    missing = [
        one for one, f in accepted.items() if f.default is MISSING and one not in (*unnamed[: len(args)], *given)
    ]
    return PlanError(f"{name} needs {', '.join(missing)}", remedy=f"write {example}") if missing else None


@_explains_arguments("th.When(every=10)")
@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The steps in which a hook is due.

    Args:
        every: Interval between due steps. For example, if `every` is 10, the hook is due in every tenth step.
        start: First step in which the hook can be due.
        stop: First step in which the hook is no longer due. None means no limit.
        phase: `"train"` or `"eval"` restricts the hook to that mode of the model. `"any"` allows both modes. None
            means `"train"` for a registered action that only observes the forward pass, and `"any"` for all others.
        after_trip: If given, the hook is due only for this many steps after a trigger (such as `spike`) trips.

    Raises:
        PlanError: A value has the wrong type or is out of range, or `stop` is not greater than `start`.

    Example:
        >>> import tenterhook as th
        >>> when = th.When(every=10, start=5, stop=30)
        >>> [step for step in range(40) if when.due(step)]
        [5, 15, 25]
    """

    every: int = 1
    start: int = 0
    stop: int | None = None
    phase: Phase | None = None
    after_trip: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("start", 0), ("stop", 0), ("after_trip", 1)):
            value = getattr(self, name)
            optional = name in ("stop", "after_trip")
            if value is None and optional:
                continue
            if type(value) is not int or value < least:
                raise PlanError(f"When({name}={value!r}): {name} must be a whole number of at least {least}")
        if self.stop is not None and self.stop <= self.start:
            raise PlanError(f"When(start={self.start}, stop={self.stop}): stop must be greater than start")
        if self.phase not in (None, "train", "eval", "any"):
            raise PlanError(f"When(phase={self.phase!r}): phase must be 'train', 'eval' or 'any'")

    def due(self, step: int) -> bool:
        """Return True if the hook is due in a step. `phase` and `after_trip` are ignored.

        Args:
            step: The step to check. The first step is 0.

        Returns:
            True if `start`, `stop` and `every` include the step.

        Example:
            >>> import tenterhook as th
            >>> th.When(every=2).due(3)
            False
        """
        if step < self.start or (self.stop is not None and step >= self.stop):
            return False
        return (step - self.start) % self.every == 0

    def next_change(self, step: int) -> int | None:
        """Return the next step in which the hook may become due or stop being due.

        Args:
            step: The current step.

        Returns:
            The next such step, or None if there is none.

        Example:
            >>> import tenterhook as th
            >>> th.When(every=10).next_change(3)
            10
        """
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


@_explains_arguments('th.Hook("id", on="**", at="grad", do=th.stats())')
@dataclass(frozen=True, slots=True)
class Hook:
    """A hook that runs the action `do` at the point `at` on the targets `on`.

    Args:
        id: Id that is unique in the plan: up to 64 letters, digits and `_ . # -`. The first character must be a letter,
            a digit or `_`.
        on: Selector of the targets: an exact name, a pattern (`*` within a part of a name, `**` across parts,
            `type:Linear` for a class), or a list of these. A leading `!` excludes the targets that the pattern matches.
        at: Name of the point, which determines the signal that the action receives. `tenterhook points` lists the
            points.
        do: Action to run: an `Action` such as `th.stats()`, or a function `fn(value)` or `fn(value, ctx)`.
        when: Steps in which the hook is due. The default is every step.
        expect: Number of targets that `on` must match. None allows any number except 0. Taps are not counted.
        on_error: `"raise"` raises a `HookError` when the action fails. `"mute"` issues a warning and mutes the hook at
            the target where the action failed. None means `"mute"` for a registered action that only observes, and
            `"raise"` for all other actions.

    Raises:
        PlanError: A field is not valid.

    Example:
        >>> import tenterhook as th
        >>> th.Hook("norms", on="**.weight", at="grad_final", do=th.stats(), when=th.When(every=10)).doing
        'stats()'
    """

    id: str
    on: str | Sequence[str] = field(kw_only=True)
    at: PointName = field(kw_only=True)
    do: Action | Callable[..., Any] = field(kw_only=True)
    when: When = field(default=ALWAYS, kw_only=True)
    expect: int | None = field(default=None, kw_only=True)
    on_error: OnError | None = field(default=None, kw_only=True)
    selector: Selector = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise PlanError(
                f"the id of a hook must be text, but it is {self.id!r}",
                remedy='write a name in quotes, such as th.Hook("clip", ...)',
            )
        if not _ID.fullmatch(self.id):
            raise PlanError(
                f"{self.id!r} is not a valid hook id",
                remedy="use up to 64 letters, digits and _ . # -, and begin with a letter, a digit or _",
            )
        if not isinstance(self.at, str) or self.at not in POINTS:
            fact, remedy = unknown_point(self.at)
            raise PlanError(fact, hook=self.id, remedy=remedy)
        several = isinstance(self.on, Sequence | Set | Iterator) and not isinstance(self.on, str | bytes)
        on: tuple[Any, ...] = tuple(self.on) if several else (self.on,)
        for one in on:
            if not isinstance(one, str):
                fact, remedy = _not_a_name(one, several=several)
                raise PlanError(fact, hook=self.id, point=self.at, remedy=remedy)
        try:
            object.__setattr__(self, "selector", Selector(on))
        except PlanError as error:
            raise error.located(hook=self.id, point=self.at) from None
        object.__setattr__(self, "on", on[0] if len(on) == 1 else on)
        object.__setattr__(self, "do", self._action())
        if self.expect is not None and (type(self.expect) is not int or self.expect < 0):
            raise PlanError(
                f"expect={self.expect!r}: expect must be a whole number of at least 0", hook=self.id, point=self.at
            )
        if not isinstance(self.when, When):
            raise PlanError(f"when={self.when!r} is not a When", hook=self.id, remedy="write when=th.When(every=10)")
        if self.on_error not in (None, "raise", "mute"):
            raise PlanError(f"on_error={self.on_error!r}: on_error must be 'raise' or 'mute'", hook=self.id)

    def _action(self) -> Action | Callable[..., Any]:
        if isinstance(self.do, Action):
            return self.do._named_after(self.id)
        bare = getattr(self.do, "as_action", None)  # a registered action without parentheses: do=th.stats
        if bare is not None:
            made: Action = bare()
            return made
        if not callable(self.do):
            raise PlanError(
                f"do={self.do!r} is neither an action nor a function",
                hook=self.id,
                point=self.at,
                remedy=f"pass the action with parameters: do=th.{self.do}(...); only a plan file refers to it by name"
                if isinstance(self.do, str)
                else "pass a function fn(value), or an action such as th.clip_value(1.0)",
            )
        return self.do

    def __repr__(self) -> str:
        shown = {"on": repr(self.on), "at": repr(self.at), "do": self.doing}
        defaults = {"when": ALWAYS, "expect": None, "on_error": None}
        shown |= {k: repr(getattr(self, k)) for k, default in defaults.items() if getattr(self, k) != default}
        return f"Hook({self.id!r}, {', '.join(f'{k}={v}' for k, v in shown.items())})"

    @property
    def point(self) -> Point:
        """Return the table entry for the hook's point."""
        return POINTS[self.at]

    @property
    def doing(self) -> str:
        """Return the action as short text: the call of a registered action, or the name of a function."""
        return str(self.do) if isinstance(self.do, Action) else callable_name(self.do)


def _not_a_name(value: object, *, several: bool) -> tuple[str, str]:
    """Return what happened and what to do, as texts, for an `on` that is not text. A plan refers to targets by name."""
    kind = type(value).__name__
    if isinstance(value, type):
        written = f'on=["type:{value.__name__}"]' if several else f'on="type:{value.__name__}"'
        return f"on= {'contains' if several else 'is'} the class {value.__name__}, not a name", f"write {written}"
    if several and (hasattr(value, "named_modules") or hasattr(value, "is_leaf")):
        names = "model.named_modules()" if hasattr(value, "named_modules") else "model.named_parameters()"
        return (
            f"on= is a list that contains a {kind}, not its name",
            f'write a list of names as in {names}, such as on=["name", "other.name"]',
        )
    if isinstance(value, re.Pattern):
        return (
            "on= is a regular expression, not a pattern",
            'write a pattern: * matches within a part of a name, ** across parts, as in on="**.mlp.*"',
        )
    if hasattr(value, "named_modules"):
        return (
            f"on= is a module of class {kind}, not a name",
            f'write its name as in model.named_modules(), or on="type:{kind}" for all modules of this class',
        )
    if hasattr(value, "requires_grad"):
        return (
            f"on= is a tensor of class {kind}, not a name",
            "write its name as in model.named_parameters(), or hook the tensor itself: th.hook(tensor, fn)",
        )
    return (
        f"on= is an object of type {kind}, not a name",
        'write a name or a pattern: on="**" selects everything, on="**.weight" parameters, on="type:Linear" modules',
    )


def callable_name(fn: Callable[..., Any]) -> str:
    """Return the qualified name of a function, or the class name of a callable object."""
    return str(getattr(fn, "__qualname__", None) or type(fn).__name__).replace("<locals>.", "")


def callable_place(fn: Callable[..., Any]) -> str:
    """Return the location of a function as `file:line`, or a module name if the function has no Python code."""
    inner = getattr(fn, "func", fn)  # functools.partial
    inner = getattr(inner, "__func__", inner)
    call = getattr(type(inner), "__call__", None)  # noqa: B004 - reads the code; does not test whether it is callable
    code = getattr(inner, "__code__", None) or getattr(call, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else type(fn).__module__
