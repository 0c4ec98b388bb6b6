"""The mutants of `scripts/mutants` fit the source. The script runs them, because this takes minutes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.record.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


def test_there_are_enough_mutants_of_every_package():
    assert len(MUTANTS) >= 40
    assert {one.package for one in MUTANTS} >= {"plan", "keep", "record", "view"}


def test_names_are_unique():
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_a_mutant_fits_the_source(one: Mutant):
    assert one.occurrences() == 1
    ast.parse(one.applied())
    assert one.text != one.new and one.broken and one.tests


def test_the_tests_of_the_mutants_exist():
    for test in {test for one in MUTANTS for test in one.tests}:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test
