"""Every error tenterhook raises, in one tree.

    TenterhookError
    ├── PlanError              a plan that cannot be understood
    │   └── PlanFileError      ... read from a file or a text; says where
    ├── ActionError            an action that is unknown, ill-formed, or given wrong parameters
    ├── ResolveError           a plan that does not fit this model
    │   ├── NoMatchError       a selector names nothing
    │   ├── ExpectError        a selector names another number of targets than expected
    │   ├── DormantError       an exact name that cannot fire now (frozen, in no optimizer)
    │   └── RefusedError       a signal that cannot be had here; says why
    ├── AttachedError          the hook id is already on this model, or is not on it
    ├── HookError             the action raised; the cause is chained
    ├── ContractError          the action returned, or did, what its point does not allow
    │   ├── InPlaceError       ... changed its value in place: the damage is done, so it always raises
    │   └── ReturnError        ... returned a value as an observer: it was meant to modify, so it always raises
    ├── RanksError             the ranks do not do the same: one is absent, or has another plan
    ├── NonFiniteError         `find_nonfinite` met the first producer
    ├── StateError             a saved state that cannot be read, or is damaged, or cannot be written
    │   └── MismatchError      ... that does not fit this model or this program; `report` lists every difference
    └── StoreError             a run folder that cannot be read, or is damaged, or cannot be written

An error carries `hook`, `target`, `point`, `rank` and `remedy` as attributes, None where they do not apply.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

#: characters of an error's text that are shown
MAX_FACT, MAX_REMEDY = 4000, 600


class Place(TypedDict, total=False):
    """Where an error happened, and what to do about it."""

    hook: str | None
    target: str | None
    point: str | None
    rank: int | None
    remedy: str | None


class TenterhookError(Exception):
    """The root of every error raised here."""

    def __init__(
        self,
        fact: str,
        *,
        hook: str | None = None,
        target: str | None = None,
        point: str | None = None,
        rank: int | None = None,
        remedy: str | None = None,
    ) -> None:
        self.fact = fact
        self.hook = hook
        self.target = target
        self.point = point
        self.rank = rank
        self.remedy = remedy
        super().__init__(self._text())

    def _text(self) -> str:
        place = []
        if self.hook is not None:
            place.append(f"hook {brief(repr(self.hook))}")
        if self.point is not None:
            place.append(f"at {brief(self.point)}")
        if self.target is not None:
            place.append(f"on {brief(repr(self.target))}")
        if self.rank is not None:
            place.append(f"(rank {self.rank})")
        head, fact = " ".join(place), brief(self.fact, MAX_FACT)
        text = f"{head}: {fact}" if head else fact
        return f"{text}\n  remedy: {brief(self.remedy, MAX_REMEDY)}" if self.remedy else text

    def __str__(self) -> str:
        return self._text()

    def located(self, **place: str | int | None) -> TenterhookError:
        """Fill in what the raise site did not know; what it did know stays."""
        for name, value in place.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self


class PlanError(TenterhookError):
    """A plan that cannot be understood."""


class PlanFileError(PlanError):
    """A plan text that cannot be read."""


class ActionError(TenterhookError):
    """An action that is unknown, ill-formed, or given wrong parameters."""


class ResolveError(TenterhookError):
    """A plan that does not fit this model."""


class NoMatchError(ResolveError):
    """A selector that names nothing on this model."""


class ExpectError(ResolveError):
    """A selector that names another number of targets than `expect`."""


class DormantError(ResolveError):
    """An exact name that cannot fire as the model stands."""


class RefusedError(ResolveError):
    """A signal that cannot be had here."""


class AttachedError(TenterhookError):
    """A hook id that is already on the model, or that is not on it."""


class HookError(TenterhookError):
    """The action raised; the exception is the cause."""


class ContractError(TenterhookError):
    """The action returned, or did, what its point does not allow."""


class InPlaceError(ContractError):
    """The action changed its value in place; raised whatever `on_error` says, because the damage is done."""


class ReturnError(ContractError):
    """An observer returned a value; raised whatever `on_error` says, because it was meant to modify."""


class RanksError(TenterhookError):
    """The ranks of a job do not do the same: one is absent, or has another plan."""


class NonFiniteError(TenterhookError):
    """The first module or parameter that made a NaN or an infinity, with what went into it."""

    def __init__(self, fact: str, *, inputs: tuple[object, ...] = (), **place: Unpack[Place]) -> None:
        self.inputs = inputs
        super().__init__(fact, **place)


class StoreError(TenterhookError):
    """A run folder that cannot be read, or is damaged, or cannot be written."""


class StateError(TenterhookError):
    """A saved state that cannot be read, or is damaged, or cannot be written."""


class MismatchError(StateError):
    """A saved state that does not fit; `report` lists every difference."""

    def __init__(self, fact: str, *, report: object = None, **place: Unpack[Place]) -> None:
        self.report = report
        super().__init__(fact, **place)


def brief(text: str, max_length: int = 200) -> str:
    """Return a text that may be shown: one from elsewhere may be long, or hold codes that control the terminal."""
    if len(text) > max_length:
        text = f"{text[: max_length - 3]}..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)


def nearest(name: str, names: list[str] | tuple[str, ...], count: int = 3) -> list[str]:
    """Return the existing names most like `name`, best first."""
    import difflib

    close = difflib.get_close_matches(name, names[:5000], n=count, cutoff=0.5)
    return close or [n for n in names[:5000] if name.strip("*.") and name.strip("*.") in n][:count]
