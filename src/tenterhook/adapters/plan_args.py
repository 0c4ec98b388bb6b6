"""Convert a callback's plan argument, and check that the plan can be saved in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from tenterhook import ranks
from tenterhook.errors import TenterhookError
from tenterhook.plan import Hook, Plan

PlanLike = Plan | Hook | Iterable[Hook]


def as_plan(given: PlanLike) -> Plan:
    """Return the given plan, hook or hooks as a Plan."""
    return given if isinstance(given, Plan) else Plan([given] if isinstance(given, Hook) else given)


def check_saveable(plan: Plan) -> bool:
    """Return True if the plan can be saved in a checkpoint. Otherwise, warn and return False.

    The warning is issued before training starts instead of at the first checkpoint.
    """
    try:
        plan.to_json()
    except TenterhookError as error:
        ranks.warn_once(f"tenterhook: checkpoints will not hold the state of the hooks. {error}", stacklevel=4)
        return False
    return True
