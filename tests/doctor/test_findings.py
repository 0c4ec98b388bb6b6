"""Check the list of codes, and how findings are printed, ordered and exported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tenterhook.audit.imbalance import TITLES
from tenterhook.doctor.findings import CODES, GROUPS, Finding, Findings, finding
from tenterhook.doctor.rules.registry import plural

ROOT = Path(__file__).parents[2]


def test_codes_are_sorted_and_unique():
    assert list(CODES) == sorted(CODES)
    assert all(re.fullmatch(r"TH[1-7]\d\d", code) and CODES[code].code == code for code in CODES)
    assert {code[:3] for code in CODES} == set(GROUPS)
    assert len({c.title for c in CODES.values()}) == len(CODES)
    assert {c.severity for c in CODES.values()} == {"error", "warning", "note"}


@pytest.mark.parametrize("code", list(CODES))
def test_every_code_has_a_page_that_shows_it(code: str):
    page = (ROOT / "docs" / "findings" / f"{code}.md").read_text()
    assert page.startswith(f"# {code}: {CODES[code].title}\n")
    shown = re.findall(r"^(TH\d\d\d) (?:error|warning|note): ", page, re.MULTILINE)
    assert shown and shown[0] == code
    assert page.count("```python") >= 2


def test_every_code_has_a_faulty_program():
    named = {
        code
        for path in (ROOT / "tests/doctor").glob("**/faulty/*.py")
        for code in path.read_text().split("\n")[0].split()
    }
    # TH709 needs several ranks, see tests/ranks/test_replicas.py; TH710 needs a GPU, see tests/audit/test_captures.py
    assert set(CODES) - named == {"TH709", "TH710"}


def test_rules_use_every_code_and_no_other():
    source = "".join(path.read_text() for path in (ROOT / "src/tenterhook/doctor").glob("*.py"))
    made = set(re.findall(r'"(TH\d\d\d)"', source.partition("CODES = {")[2] + source))
    assert made | set(TITLES) == set(CODES)


GRAVE = finding(
    "TH501", "1 of 1 firings", "return x\nreturn y", hook="h", target="w", by="register_hook", place="a.py:3"
)


def test_a_finding_is_printed_with_place_evidence_and_remedy():
    assert str(GRAVE) == (
        "TH501 error: the hook changes the gradient in place\n"
        "  where:    hook 'h' by register_hook on 'w' (a.py:3)\n"
        "  evidence: 1 of 1 firings\n"
        "  remedy:   return x\n"
        "            return y"
    )


def test_long_evidence_is_wrapped():
    lines = str(finding("TH109", "word " * 60, "x")).split("\n")
    assert max(map(len, lines)) <= 112
    assert [line[:12] for line in lines[1:3]] == ["  evidence: ", " " * 12]


def test_findings_are_ordered_by_severity_without_duplicates():
    note, warning = finding("TH302", "a", "b"), finding("TH403", "a", "b")
    findings = Findings([note, warning, GRAVE, note])
    assert findings.codes == ["TH501", "TH403", "TH302"]
    assert [f.severity for f in findings] == ["error", "warning", "note"]
    assert findings.grave == [GRAVE, warning]
    assert (len(findings), findings[0], findings[1:]) == (3, GRAVE, [warning, note])


@pytest.mark.parametrize(("codes", "exit_code"), [([], 0), (["TH302"], 0), (["TH403"], 1), (["TH302", "TH501"], 1)])
def test_the_exit_code(codes: list[str], exit_code: int):
    assert Findings(finding(c, "a", "b") for c in codes).exit_code == exit_code


def test_json():
    written = json.loads(Findings([GRAVE]).to_json())
    assert written == {
        "tenterhook": 1,
        "findings": [
            {
                "code": "TH501", "title": "the hook changes the gradient in place", "severity": "error",
                "evidence": "1 of 1 firings", "remedy": "return x\nreturn y", "hook": "h", "target": "w",
                "point": None, "by": "register_hook", "place": "a.py:3", "patch": None,
            }
        ],
    }  # fmt: skip


def test_a_finding_can_be_reported_as_a_note():
    assert finding("TH501", "a", "b", as_note=True).severity == "note"


def test_plural_and_representations():
    assert (plural(0, "call"), plural(1, "call"), plural(2, "call")) == ("0 calls", "1 call", "2 calls")
    assert repr(Findings(())) == "no findings"
    assert "&lt;lambda&gt;" in Findings([finding("TH501", "a", "b", hook="<lambda>")])._repr_html_()
    assert isinstance(GRAVE, Finding) and hash(GRAVE) == hash(GRAVE)


def test_the_list_of_pages_is_complete():
    listed = (ROOT / "docs" / "findings" / "README.md").read_text()
    for code in CODES.values():
        assert f"| [{code.code}]({code.code}.md) | {code.severity} | {code.title} |\n" in listed
    assert f"[{len(CODES)} codes](docs/findings/README.md)" in (ROOT / "README.md").read_text()
