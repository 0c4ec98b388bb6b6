"""What a callback is given: a plan, and whether a checkpoint can hold it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from tenterhook.errors import TenterhookError
from tenterhook.plan import Hook, Plan

Given = Plan | Hook | Iterable[Hook]


def as_plan(given: Given) -> Plan:
    return given if isinstance(given, Plan) else Plan([given] if isinstance(given, Hook) else given)


def can_be_kept(plan: Plan) -> bool:
    """A function without a name cannot; better said before the training than at its first checkpoint."""
    try:
        plan.to_json()
    except TenterhookError as error:
        warnings.warn(f"tenterhook: checkpoints are saved without the hooks. {error}", stacklevel=3)
        return False
    return True
