"""Define every error that tenterhook raises, in one class tree.

    TenterhookError
    ├── PlanError              a hook or a plan is not valid
    │   └── PlanFileError      a plan file or plan text cannot be read or written
    ├── ActionError            an action is not registered, is defined incorrectly, or has invalid parameters
    ├── ResolveError           a plan does not fit the model
    │   ├── NoMatchError       a selector matches no target
    │   ├── ExpectError        a selector does not match the expected number of targets
    │   ├── DormantError       a hook cannot fire in the current state of the model
    │   └── RefusedError       the signal is not available for this model or this action
    ├── AttachedError          the hook id is already attached, or is not attached
    │   └── UnknownHookError   a rig or a plan has no hook with this id
    ├── HookError              the action raised an exception (see `__cause__`)
    ├── ContractError          the action did something that its point does not allow
    │   ├── InPlaceError       the action changed the value in place
    │   └── ReturnError        an action that only observes returned a value
    ├── RanksError             a rank did not make a call, or the ranks have different plans or code
    ├── NonFiniteError         `find_nonfinite` found the first NaN or infinity
    ├── StateError             a saved state cannot be read or written, or is damaged
    │   └── MismatchError      a saved state does not fit the model or the program
    └── StoreError             a run folder cannot be read or written, or is damaged

Every error has the attributes `hook`, `target`, `point`, `rank` and `remedy`. An attribute that does not apply is None.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypedDict, Unpack

#: maximum length of the fact and of the remedy in an error text, in characters
MAX_FACT, MAX_REMEDY = 4000, 600


class Place(TypedDict, total=False):
    """The keyword arguments that locate an error and give its remedy."""

    hook: str | None
    target: str | None
    point: str | None
    rank: int | None
    remedy: str | None


class TenterhookError(Exception):
    """The base class of all errors that tenterhook raises.

    The error text states the place, the fact and the remedy. Catch this class to handle any tenterhook error.

    Args:
        fact: Description of what happened.
        hook: Id of the hook.
        target: Name of the parameter, module, optimizer or tap.
        point: Name of the point, for example `"grad"`.
        rank: Rank of the process.
        remedy: How to fix the problem.

    Each argument is also an attribute. An attribute that does not apply is None.
    """

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
        """Fill in missing attributes of the error, and return the error.

        Args:
            **place: Values for `hook`, `target`, `point`, `rank` or `remedy`. Values that are already set are kept.

        Returns:
            This error, so that the caller can raise it directly.
        """
        for name, value in place.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self


class PlanError(TenterhookError):
    """Raised when a `Hook`, a `When` or a `Plan` is not valid.

    The error text names the invalid field and its value. Correct that field.
    """


class PlanFileError(PlanError):
    """Raised when a plan cannot be read from JSON or TOML, or cannot be written as JSON.

    The error text names the file, if any, and describes the problem. Correct the plan accordingly.
    """


class ActionError(TenterhookError):
    """Raised when an action is not registered, is defined incorrectly, or has invalid parameters.

    Check the name and the parameters of the action. Import the module that registers the action before you attach the
    plan.
    """


class ResolveError(TenterhookError):
    """Raised when a plan cannot be attached to this model.

    This error is also raised when an argument to `attach` has the wrong type. Nothing was attached. The subclasses
    give specific reasons.
    """


class NoMatchError(ResolveError):
    """Raised when a selector matches no target in the model, or when an exactly named target does not exist.

    The remedy lists the most similar names. Correct `on`, or pass `expect=0` if no match is intended.
    """


class ExpectError(ResolveError):
    """Raised when the number of targets that a selector matches differs from `expect`.

    Correct `on` or `expect`.
    """


class DormantError(ResolveError):
    """Raised when a hook cannot fire because of the current state of the model.

    One cause is a target that is named exactly but is frozen, is not in an optimizer, or is a container that is never
    called. The other cause is that none of the targets is in an optimizer that was passed to `attach`. The remedy
    describes the change to make. If only a pattern matches the target, no error is raised: the hook is dormant at that
    target until the state of the model changes.
    """


class RefusedError(ResolveError):
    """Raised when a hook's signal is not available for this model or this action.

    The error text gives the reason, and the remedy names an alternative.
    """


class AttachedError(TenterhookError):
    """Raised when a hook id is already attached to the model, or when a hook or a rig is not attached.

    Use a different id, or pass `replace=True` to `attach`. If the rig was detached, attach the plan again.
    """


class UnknownHookError(AttachedError, KeyError):
    """Raised when a rig, its ledger or a plan has no hook with the given id.

    Use one of the ids in the error text.
    """

    __str__ = Exception.__str__  # KeyError would print the text in quotes

    @classmethod
    def among(cls, id: str, ids: Collection[str], owner: str) -> UnknownHookError:
        """Create the error for an id that is not among the ids of a rig or plan."""
        close = nearest(id, ids)
        have = ", ".join(ids) or f"none (the {owner} has no hooks)"
        remedy = f"use the nearest id, {close[0]!r}" if close else f"use one of these ids: {have}"
        if id == "updates":
            remedy += "; watch adds 'updates' only if you pass an optimizer"
        return cls(f"the {owner} has no hook with this id", hook=id, remedy=remedy)


class HookError(TenterhookError):
    """Raised when the action of a hook raises an exception.

    The exception is the `__cause__` of this error. Fix the action, or pass `on_error="mute"` to the hook. With
    `"mute"`, tenterhook issues a warning and mutes the hook at the target where the action failed, and training
    continues.
    """


class ContractError(TenterhookError):
    """Raised when an action does something that its point or its registration does not allow.

    For example, the action returned a tensor of a different shape or dtype. The remedy states what the action must do
    instead.
    """


class InPlaceError(ContractError):
    """Raised when an action changes its value in place.

    Other tensors may share memory with the value, so the run may already be corrupted. The error is therefore raised
    even if `on_error` is `"mute"`. Return a new tensor instead: `x * 2`, not `x.mul_(2)`.
    """


class ReturnError(ContractError):
    """Raised when an action that only observes returns a value.

    The value would be lost, so the error is raised even if `on_error` is `"mute"`. Return None, or register the action
    with `modifies=True`.
    """


class RanksError(TenterhookError):
    """Raised when the ranks of a job do not agree.

    Either a rank did not make a call that all ranks must make, or the ranks have different plans or different code.
    Make the same call with the same plan on every rank.
    """


class NonFiniteError(TenterhookError):
    """Raised by `find_nonfinite` at the first value that is NaN or infinite.

    The attributes `target` and `point` show where the value first appeared.

    Args:
        fact: Description of what happened.
        inputs: Input tensors of the module, if they are known. They are also available as the attribute `inputs`.
        **place: Values for `hook`, `target`, `point`, `rank` and `remedy`.
    """

    def __init__(self, fact: str, *, inputs: tuple[object, ...] = (), **place: Unpack[Place]) -> None:
        self.inputs = inputs
        super().__init__(fact, **place)


class StoreError(TenterhookError):
    """Raised when a run folder cannot be read or written, or is damaged.

    The error text names the folder or the file. Follow the remedy, or pass a different folder.
    """


class StateError(TenterhookError):
    """Raised when the saved state of a rig cannot be read or written, or is damaged.

    No state was loaded. If the state is damaged, load an earlier checkpoint.
    """


class MismatchError(StateError):
    """Raised when a saved state does not fit the model or the program.

    Read `report`, correct the differences or rename the targets, and load the state again.

    Args:
        fact: Description of what happened.
        report: Report of all differences. It is also available as the attribute `report`.
        **place: Values for `hook`, `target`, `point`, `rank` and `remedy`.
    """

    def __init__(self, fact: str, *, report: object = None, **place: Unpack[Place]) -> None:
        self.report = report
        super().__init__(fact, **place)


def brief(text: str, max_length: int = 200) -> str:
    """Shorten text to at most `max_length` characters, and escape nonprintable characters.

    Text from files or other programs may be very long or contain terminal control codes.
    """
    if len(text) > max_length:
        text = f"{text[: max_length - 3]}..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)


def nearest(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Return the names that are really similar to `name`, best match first.

    A name is similar if it differs in a few letters, or if one of the two contains the other.
    """
    import difflib

    wanted = name.strip("*.").lower()
    if not wanted:
        return []
    matcher = difflib.SequenceMatcher(b=wanted)
    scores: dict[str, float] = {}
    for one in itertools.islice(dict.fromkeys(names), 5000):
        other = one.lower()
        matcher.set_seq1(other)
        score = matcher.ratio() if matcher.quick_ratio() >= 0.5 else 0.0
        if score and _parent(one) and _parent(one) == _parent(name):
            score += 0.15  # a name in the same module
        if min(len(wanted), len(other)) >= 3 and (wanted in other or other in wanted):
            score = max(score, _SIMILAR)
        if score >= _SIMILAR:
            scores[one] = score
    return sorted(scores, key=lambda one: -scores[one])[:count]


def nearest_file(path: Path) -> str | None:
    """Return the path of the file beside `path` whose name is most similar, or None if no name is similar."""
    try:
        names = [one.name for one in itertools.islice(path.parent.iterdir(), 1000) if one.is_file()]
    except OSError:
        return None
    close = nearest(path.name, [one for one in names if one.endswith(path.suffix)], 1)
    return str(path.parent / close[0]) if close else None


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


#: the least ratio of equal letters with which two names are similar
_SIMILAR = 0.65
