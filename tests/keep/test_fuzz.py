"""Run a short part of the fuzzing of `scripts/fuzz`, and every input of the corpus."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

import tenterhook as th
from tests.support.keep.fuzz import chunk
from tests.support.keep.plan_mutants import CORPUS, PlanMutants, is_state
from tests.support.keep.specimen import same
from tests.support.keep.state_mutants import Load, StateMutants, loaded, seeds

INPUTS = {"json": 8000, "toml": 2000, "state": 2500}
STATES = sorted(path.name for path in CORPUS.iterdir() if is_state(path))
PLANS = sorted(path.name for path in CORPUS.iterdir() if not is_state(path))


@pytest.mark.parametrize("kind", INPUTS)
def test_mutants_are_read_or_refused(kind):
    tally = chunk(kind, 20, 0, INPUTS[kind])
    assert not tally.found, next(iter(tally.found.values()))[1]
    assert tally.inputs == INPUTS[kind]
    accepted = sum(times for outcome, times in tally.outcomes.items() if outcome.endswith("accepted"))
    assert 0.05 < accepted / tally.inputs < 0.5


def test_mutants_of_states_come_as_far_as_they_can():
    """Check that mutants with valid digests reach every stage, and that other mutants are refused in reading."""
    outcomes = chunk("state", 21, 0, 1000).outcomes
    assert outcomes["sealed: refused in reading"] > 100
    assert outcomes["sealed: refused in comparing"] > 100
    assert outcomes["sealed: accepted"] > 50
    assert outcomes["unsealed: refused in reading"] > 300


def test_a_chunk_is_the_same_every_time():
    one, other = chunk("state", 22, 3, 200), chunk("state", 22, 3, 200)
    assert one.outcomes == other.outcomes


def test_a_state_that_was_written_down_is_loaded_again():
    seed = seeds()["whole"]
    load = Load("whole", dict(seed.state), {"strict": True, "rename": None}, sealed=True)
    again = loaded(StateMutants.written(load))
    assert same(again.state, load.state)
    assert again._replace(state={}) == load._replace(state={})


@pytest.mark.parametrize("name", PLANS)
def test_a_kept_plan_is_read_or_refused_by_its_name(name):
    mutants = PlanMutants(Random(0), Path(name).suffix[1:])
    try:
        plan = mutants.read((CORPUS / name).read_bytes())
    except th.PlanError:
        assert name.startswith("not-")
    else:
        assert name.startswith("plan-")
        assert th.Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("name", STATES)
def test_a_kept_state_is_loaded_or_refused(name):
    mutants = StateMutants(Random(0))
    with suppress(th.StateError):
        mutants.read(loaded((CORPUS / name).read_bytes()))
