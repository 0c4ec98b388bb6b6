"""Run a slice of the random programs. `scripts/random` runs as many as you like."""

from __future__ import annotations

import pytest

from tests.support.random_programs.execution import execute
from tests.support.random_programs.programs import generate


def failures(seeds: range, compiled: str | None = None) -> list[str]:
    outcomes = [(seed, execute(generate(seed), compiled)) for seed in seeds]
    return [f"{o.kind} {seed}: {o.detail}" for seed, o in outcomes if o.kind in ("silent", "crash")]


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_eager_programs(first: int) -> None:
    assert failures(range(first, first + 25)) == []


@pytest.mark.compiled
def test_compiled_programs() -> None:
    assert failures(range(4), "aot_eager") == []
