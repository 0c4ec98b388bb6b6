"""Collect the verdicts about a run, the cause first."""

from __future__ import annotations

from tenterhook.record import Verdict
from tenterhook.verdict.case import Case
from tenterhook.verdict.rules import RULES

_ORDER = {"error": 0, "warning": 1, "note": 2}


def judge(case: Case) -> list[Verdict]:
    """Return the verdicts. Errors are first, then the earlier step, then the rule that is nearer to the cause."""
    found = [(_ORDER[one.severity], one.step, place, one) for place, rule in enumerate(RULES) for one in rule(case)]
    return [one for *_, one in sorted(found, key=lambda item: item[:3])]
