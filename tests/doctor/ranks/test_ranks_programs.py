"""Test exams of raw hooks on two ranks.

The rank that has the fault must report it first, and healthy programs must not be reported.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.doctor.programs import Program, programs
from tests.support.ranks.launch import torchrun

FAULTY, HEALTHY = programs("ranks/faulty"), programs("ranks/healthy")
#: the finding that only the rank with the hook reports: the other ranks do not have the hook
OF_ONE_RANK = "TH111"

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def results() -> dict[str, list[dict[str, Any]]]:
    """Collect the results of all programs on both ranks from one launch, since starting takes longer than running."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in torchrun("tests.support.doctor.examined", 2).splitlines():
        if line.startswith("result "):
            one = json.loads(line.removeprefix("result "))
            found.setdefault(one["program"], []).append(one)
    return found


def of_both_ranks(results: dict[str, list[dict[str, Any]]], program: Program) -> list[dict[str, Any]]:
    runs = results[str(program)]
    assert sorted(one["rank"] for one in runs) == [0, 1]
    for one in runs:
        assert one["error"] == one["bare"]
        assert one["same"]
    return runs


@pytest.mark.parametrize("program", FAULTY, ids=str)
def test_the_fault_is_named_first(program: Program, results: dict[str, list[dict[str, Any]]]):
    runs = of_both_ranks(results, program)
    if program.codes == [OF_ONE_RANK]:
        others = [one for one in runs if OF_ONE_RANK not in [code for code, _, _ in one["found"]]]
        assert len(others) == 1
        assert [f for f in others[0]["found"] if f[1] != "note"] == []
        runs = [one for one in runs if one not in others]
    for one in runs:
        found = one["found"][: len(program.codes)]
        assert sorted(code for code, _, _ in found) == sorted(program.codes), one["text"]
        for code, _, place in found:
            path, _, line = place.rpartition(":")
            assert (path, int(line) in program.lines[code]) == (str(program.path), True), one["text"]


@pytest.mark.parametrize("program", HEALTHY, ids=str)
def test_nothing_is_wrong(program: Program, results: dict[str, list[dict[str, Any]]]):
    for one in of_both_ranks(results, program):
        assert one["error"] is None
        assert [f for f in one["found"] if f[1] != "note"] == [], one["text"]


def test_there_are_enough():
    assert len(FAULTY) >= 15
    assert len(HEALTHY) >= 8
