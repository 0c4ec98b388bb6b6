"""Collect the verdicts about a run, the cause first."""

from __future__ import annotations

import math

from tenterhook.record import Verdict
from tenterhook.verdict.case import SOON, Case
from tenterhook.verdict.rules import RULES

#: the code of a training that explodes, and the codes that explain why
EXPLODES, EXPLANATIONS = "TH806", frozenset(("TH805", "TH807", "TH808", "TH809", "TH816", "TH817", "TH818"))


def judge(case: Case) -> list[Verdict]:
    """Return the verdicts. Errors are first, the earliest one before the others.

    Most warnings are about the whole run, so the one of the rule that is nearer to the cause is the first of them.
    """
    found = [(place, one) for place, rule in enumerate(RULES) for one in rule(case)]
    errors = sorted(((one.step, place, one) for place, one in found if one.severity == "error"), key=lambda e: e[:2])
    causes, warnings = [one for *_, one in errors], [one for _, one in found if one.severity != "error"]
    explained = min((one.step for one in causes if one.code in EXPLANATIONS), default=math.inf)
    # A layer that was overwritten makes the weights larger, also if the loss recovers from it.
    warned = [one.step for one in warnings if one.code in EXPLANATIONS]
    causes = [
        one
        for one in causes
        if one.code != EXPLODES or (one.step < explained and not any(0 <= one.step - at <= SOON for at in warned))
    ]
    return causes + warnings
