"""Each code of the doctor has one rule, and is written down where that rule is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tenterhook.doctor
from tenterhook.doctor.findings import CODES
from tenterhook.doctor.rules.registry import RULES, Subject, Words, rule

DOCTOR = Path(tenterhook.doctor.__file__).parent


def test_every_code_has_a_rule() -> None:
    assert RULES.keys() == CODES.keys()


def test_a_second_rule_for_a_code_is_refused() -> None:
    with pytest.raises(ValueError, match="TH202 has a rule already"):
        rule("TH202")(lambda about: Words("a", "b"))
    with pytest.raises(ValueError, match="TH999 is not a code"):
        rule("TH999")(lambda about: Words("a", "b"))
    assert RULES.keys() == CODES.keys()


def test_a_code_is_written_once_beside_the_list_of_codes() -> None:
    written: dict[str, list[str]] = {}
    for path in DOCTOR.rglob("*.py"):
        if path.name != "findings.py":
            for code in re.findall(r"\"(TH\d{3})\"", path.read_text()):
                written.setdefault(code, []).append(path.relative_to(DOCTOR).as_posix())
    assert {code for code, files in written.items() if len(files) > 1} == set()
    assert written.keys() == CODES.keys()


def test_findings_are_made_by_rules_alone() -> None:
    makers = [p.name for p in DOCTOR.rglob("*.py") if re.search(r"(?<!def )\b(finding|Finding)\(", p.read_text())]
    assert sorted(makers) == ["findings.py", "registry.py"]


def test_a_rule_that_quotes_says_nothing_of_its_own() -> None:
    quoted = RULES["TH106"]
    assert quoted(Subject()) is None
    assert quoted.quote(Subject(place="a.py:1"), "no attribute", "x").code == "TH106"
