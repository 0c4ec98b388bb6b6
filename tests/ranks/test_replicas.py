"""Test that a replica that differs is reported in its step, with its tensor, its rank and its cause."""

from __future__ import annotations

import pytest

from tests.support.ranks.launch import torchrun
from tests.support.ranks.replica_policies import PROGRAMS
from tests.support.ranks.replicas import judge


def faults(ranks: int, *arguments: str) -> list[str]:
    lines = [one for one in torchrun("tests.support.ranks.replicas", ranks, *arguments).splitlines() if one[0] == "{"]
    assert lines
    return [f"{found}: {line}" for line in lines for found in judge(line, ranks)]


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_each_damage_is_reported_in_its_step(ranks: int) -> None:
    assert not faults(ranks, "0", "12")


@pytest.mark.ranks
def test_a_part_of_the_model_in_each_step_finds_it_in_time() -> None:
    assert not faults(2, "0", "4", "--every", "8")


@pytest.mark.ranks
def test_healthy_replicas_are_not_reported() -> None:
    assert not faults(2, "0", "3", "--healthy")


@pytest.mark.ranks
def test_policies() -> None:
    said = torchrun("tests.support.ranks.replica_policies", 2).splitlines()
    assert sorted(said) == sorted(f"rank {rank}: {one.__name__}" for rank in (0, 1) for one in PROGRAMS)
