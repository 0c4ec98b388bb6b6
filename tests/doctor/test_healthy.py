"""Nothing is wrong: no error, no warning, and the run is the bare one, bit for bit."""

from __future__ import annotations

import pytest

from tests.doctor.programs import Program, programs, run, same

HEALTHY = programs("healthy")


@pytest.mark.parametrize("program", HEALTHY, ids=str)
def test_nothing_is_wrong(program: Program):
    bare, seen = run(program, examined=False), run(program, examined=True)
    assert (seen.error, bare.error) == (None, None)
    assert seen.result is not None
    assert same(seen.result, bare.result)
    assert seen.findings.grave == [], repr(seen.findings)


def test_there_are_enough():
    assert len(HEALTHY) >= 30
