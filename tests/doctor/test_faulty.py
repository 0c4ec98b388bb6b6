"""Run programs with a known fault: the exam must report its code first, with the right line, and not change the run."""

from __future__ import annotations

import ast
import re
import textwrap

import pytest

from tests.support.doctor.programs import Program, programs, run, same
from tests.support.earlier_torch import since

FAULTY = programs("faulty")
#: programs with a hook that is compiled again and again
RECOMPILED = {
    "activations_appended_in_the_graph", "appended_on_a_compiled_block", "calls_counted_in_the_graph",
    "fullgraph_with_an_appending_hook",
}  # fmt: skip
_LATER = since(11, "does not say which function a recompilation is for")


@pytest.mark.slice(3)
@pytest.mark.programs
@pytest.mark.parametrize(
    "program", [pytest.param(one, id=str(one), marks=_LATER if str(one) in RECOMPILED else ()) for one in FAULTY]
)
def test_the_fault_is_reported_first(program: Program):
    codes = program.codes
    assert codes, "the first line names no code"
    program.need_packages()
    bare, seen = run(program, examined=False), run(program, examined=True)
    assert without_addresses(seen.error) == without_addresses(bare.error)
    assert same(seen.result, bare.result)
    found = list(seen.findings)[: len(codes)]
    assert sorted(f.code for f in found) == sorted(codes), repr(seen.findings)
    for one in (one for one in seen.findings if one.by is not None):
        # The remedy for a raw hook is the body of a function: it may return, and it may consist of a comment.
        ast.parse("def fix(self):\n" + textwrap.indent(f"{one.remedy}\n...", "    "))
    for one in found:
        lines = program.lines.get(one.code)
        if lines:
            assert one.place is not None, one
            path, _, line = one.place.rpartition(":")
            assert (path, int(line) in lines) == (str(program.path), True), one


def without_addresses(text: str | None) -> str | None:
    return None if text is None else re.sub(r" at 0x\w+", "", text)


def test_there_are_enough_programs():
    assert len([p for p in FAULTY if len(p.codes) == 1]) >= 60
    assert len([p for p in FAULTY if len(p.codes) == 2]) >= 10
