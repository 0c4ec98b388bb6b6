"""Describe the error of an action: which hook failed at which target, and what to do."""

from __future__ import annotations

from typing import Any

from tenterhook.errors import HookError, TenterhookError
from tenterhook.plan import Action
from tenterhook.resolve.resolution import ResolvedHook
from tenterhook.torch_internals.code_owner import owner_of

_OTHERWISE = {
    "raise": 'set on_error="mute" to continue without the hook',
    "mute": 'set on_error="raise" to stop training instead',
}


def describe(error: Exception, resolved: ResolvedHook, target: str, step: int) -> TenterhookError:
    """Return the error to report for an action that failed, with its cause."""
    hook = resolved.hook
    place: dict[str, Any] = {"hook": hook.id, "target": target, "point": hook.at}
    if isinstance(error, TenterhookError):
        return error.located(**place)
    name, fix = resolved.definition.name, "fix the action"
    if isinstance(hook.do, Action) and owner_of(resolved.definition.fn) == "tenterhook":
        fix = f"pass parameters to {name} that fit the value at this target"
    told = HookError(
        f"its action {name} raised {type(error).__name__}: {error} (step {step})",
        **place,
        remedy=f"{fix}, or {_OTHERWISE[resolved.on_error]}",
    )
    told.__cause__ = error
    return told
