"""Report the differences between the ledger and the model that the auditor found, with the texts of the auditor."""

from __future__ import annotations

from tenterhook.audit.imbalance import TITLES, Imbalance
from tenterhook.doctor.findings import Finding
from tenterhook.doctor.rules.registry import Subject, quoting

_RULES = {code: quoting(code) for code in TITLES}


def imbalance(one: Imbalance) -> Finding:
    """Return the finding for a difference."""
    about = Subject(one.hook, one.target, one.point, minor=one.severity == "note")
    return _RULES[one.code].quote(about, one.evidence, one.remedy)
