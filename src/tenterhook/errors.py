"""Define every error that tenterhook raises, in one class tree.

    TenterhookError
    ├── PlanError              a hook or a plan is not valid
    │   └── PlanFileError      a plan file or plan text cannot be read or written
    ├── ActionError            an action is not registered, is badly defined, or has wrong parameters
    ├── ResolveError           a plan does not fit the model
    │   ├── NoMatchError       a selector matches no target
    │   ├── ExpectError        a selector does not match the expected number of targets
    │   ├── DormantError       a target that was named exactly cannot fire (frozen, or not in an optimizer)
    │   └── RefusedError       the signal is not available on this model
    ├── AttachedError          the hook id is already attached, or is not attached
    ├── HookError              the action raised an exception, which is the cause of this error
    ├── ContractError          the action did something that its point does not allow
    │   ├── InPlaceError       the action changed its value in place
    │   └── ReturnError        an action that only observes returned a value
    ├── RanksError             the ranks do not agree: one is missing, or has a different plan
    ├── NonFiniteError         `find_nonfinite` found the first NaN or infinity
    ├── StateError             a saved state cannot be read or written, or is damaged
    │   └── MismatchError      a saved state does not fit the model or the program
    └── StoreError             a run folder cannot be read or written, or is damaged

Every error has the attributes `hook`, `target`, `point`, `rank` and `remedy`. An attribute that does not apply is None.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

#: longest fact and longest remedy that an error shows, in characters
MAX_FACT, MAX_REMEDY = 4000, 600


class Place(TypedDict, total=False):
    """Hold the arguments that say where an error happened and how to fix it."""

    hook: str | None
    target: str | None
    point: str | None
    rank: int | None
    remedy: str | None


class TenterhookError(Exception):
    """The base class of all errors that tenterhook raises.

    The text of an error contains the place, the fact and the remedy. Catch this class to handle every error of
    tenterhook.

    Args:
        fact: Description of what happened.
        hook: Id of the hook.
        target: Name of the parameter, module, optimizer or tap.
        point: Name of the point, for example `"grad"`.
        rank: Rank of the process.
        remedy: Instruction that fixes the problem.

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
        """Add the place to the error, and return the error.

        Args:
            **place: Values for `hook`, `target`, `point`, `rank` or `remedy`. A value that the error already has stays.

        Returns:
            This error, so that it can be raised in the same line.
        """
        for name, value in place.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self


class PlanError(TenterhookError):
    """Raised when a `Hook`, a `When` or a `Plan` is not valid.

    The text names the field and the value that is wrong. Correct that field.
    """


class PlanFileError(PlanError):
    """Raised when a plan cannot be read from JSON or TOML, or cannot be written as JSON.

    The text names the file, if there is one, and the place in the text. Correct the plan there.
    """


class ActionError(TenterhookError):
    """Raised when an action is not registered, is badly defined, or has wrong parameters.

    Check the name and the parameters of the action. Import the module that registers it before you attach the plan.
    """


class ResolveError(TenterhookError):
    """Raised when a plan cannot be attached to this model.

    It is also raised when an argument of `attach` has the wrong type. Nothing was attached. The subclasses give the
    reason.
    """


class NoMatchError(ResolveError):
    """Raised when a selector matches no target of the model, or an exact name does not exist.

    The remedy lists the most similar names. Correct `on`, or pass `expect=0` if no match is intended.
    """


class ExpectError(ResolveError):
    """Raised when a selector does not match exactly `expect` targets.

    Correct `on`, or correct `expect`.
    """


class DormantError(ResolveError):
    """Raised when a hook cannot fire because of the present state of the model.

    Either a target that was named exactly is frozen, is not in an optimizer, or is a container that is never called; or
    none of the targets is in an optimizer that was passed to `attach`. The remedy says what to change. A target that a
    pattern matches does not raise this error: it is dormant until its state changes.
    """


class RefusedError(ResolveError):
    """Raised when the signal of a hook is not available on this model, or not to this action.

    The text gives the reason, and the remedy names a point or an action that works.
    """


class AttachedError(TenterhookError):
    """Raised when a hook id is already attached to the model, or when a hook or a rig is not attached.

    Use another id, or pass `replace=True` to `attach`. If the rig was detached, attach the plan again.
    """


class HookError(TenterhookError):
    """Raised when the action of a hook raised an exception.

    The exception is the `__cause__` of this error. Fix the action, or pass `on_error="mute"` to the hook: then a target
    at which the action fails is muted with a warning, and training continues.
    """


class ContractError(TenterhookError):
    """Raised when an action does something that its point or its registration does not allow.

    For example, it returned a tensor of a different shape or dtype. The remedy says what the action must return.
    """


class InPlaceError(ContractError):
    """Raised when an action changed its value in place.

    Other tensors may share the memory, so the run may already be corrupt. The error is therefore raised even if
    `on_error` is `"mute"`. Return a new tensor instead: `x * 2`, not `x.mul_(2)`.
    """


class ReturnError(ContractError):
    """Raised when an action that only observes returned a value.

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

    `target` and `point` say where the value appeared.

    Args:
        fact: Description of what happened.
        inputs: Tensors that the module received, if they are known. They are also the attribute `inputs`.
        **place: Values for `hook`, `target`, `point`, `rank` and `remedy`.
    """

    def __init__(self, fact: str, *, inputs: tuple[object, ...] = (), **place: Unpack[Place]) -> None:
        self.inputs = inputs
        super().__init__(fact, **place)


class StoreError(TenterhookError):
    """Raised when a run folder cannot be read or written, or is damaged.

    The text names the folder or the file. Follow the remedy, or pass another folder.
    """


class StateError(TenterhookError):
    """Raised when the saved state of a rig cannot be read or written, or is damaged.

    Nothing was loaded. If the state is damaged, load an earlier checkpoint.
    """


class MismatchError(StateError):
    """Raised when a saved state does not fit the model or the program.

    Read `report`, correct the differences or rename the targets, and load again.

    Args:
        fact: Description of what happened.
        report: List of all differences. It is also the attribute `report`.
        **place: Values for `hook`, `target`, `point`, `rank` and `remedy`.
    """

    def __init__(self, fact: str, *, report: object = None, **place: Unpack[Place]) -> None:
        self.report = report
        super().__init__(fact, **place)


def brief(text: str, max_length: int = 200) -> str:
    """Limit a text to `max_length` characters, and escape the characters that cannot be printed.

    Texts from files or other programs may be very long, or may contain control codes for the terminal.
    """
    if len(text) > max_length:
        text = f"{text[: max_length - 3]}..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)


def nearest(name: str, names: list[str] | tuple[str, ...], count: int = 3) -> list[str]:
    """Return the names that are most similar to `name`, the best match first."""
    import difflib

    close = difflib.get_close_matches(name, names[:5000], n=count, cutoff=0.5)
    return close or [n for n in names[:5000] if name.strip("*.") and name.strip("*.") in n][:count]
