"""Every code of a verdict has a page with a program that shows it, and is listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tenterhook.verdict.codes import CODES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("code", CODES)
def test_a_code_has_a_page_that_shows_it(code: str):
    title, severity = CODES[code]
    page = (DOCS / "findings" / f"{code}.md").read_text()
    assert page.startswith(f"# {code}: {title}\n")
    assert re.search(rf"^```text\n{code} ", page, re.MULTILINE)
    assert f"| [{code}]({code}.md) | {severity} | {title} |\n" in (DOCS / "findings" / "README.md").read_text()
    assert f"| [{code}](../findings/{code}.md) | {title} |\n" in (DOCS / "commands" / "run.md").read_text()
