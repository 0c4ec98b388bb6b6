"""The plan that a trainer's callback is given, and whether a checkpoint can hold it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from tenterhook.errors import TenterhookError
from tenterhook.plan import Hook, Plan

PlanLike = Plan | Hook | Iterable[Hook]


def as_plan(given: PlanLike) -> Plan:
    """Return a plan, or the hooks given, as a Plan."""
    return given if isinstance(given, Plan) else Plan([given] if isinstance(given, Hook) else given)


def check_saveable(plan: Plan) -> bool:
    """Return True if a checkpoint can hold the plan; warn if not, before the training rather than at its first save."""
    try:
        plan.to_json()
    except TenterhookError as error:
        warnings.warn(f"tenterhook: checkpoints are saved without the hooks. {error}", stacklevel=3)
        return False
    return True
