"""Test that a run that was saved on n ranks and restored on m ranks continues as if it had not been interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks.launch import torchrun
from tests.support.slices import sliced


def outcomes(printed: str) -> list[dict[str, Any]]:
    lines = [line for line in printed.splitlines() if line.startswith("outcome ")]
    return [json.loads(line.removeprefix("outcome ")) for line in lines]


def close(mine: Any, theirs: Any) -> None:
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys()
        for key in mine:
            close(mine[key], theirs[key])
    elif isinstance(mine, list):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            close(one, other)
    else:
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-12)


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """Train on one process without interruption."""
    (found,) = outcomes(torchrun("tests.support.ranks.state", 1, "fsdp2", "all", "-"))
    assert found.pop("notes") == []
    return found


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("regime", "then", "now"),
    sliced([("fsdp2", 2, (1, 4)), ("fsdp2", 1, (2,)), ("fsdp2", 4, (2,)), ("ddp", 2, (1,))], 3),
)
def test_it_goes_on_with_another_number_of_ranks(
    regime: str, then: int, now: tuple[int, ...], alone: dict[str, Any], tmp_path: Path
):
    torchrun("tests.support.ranks.state", then, regime, "save", str(tmp_path / "saved"))
    for ranks in now:
        runs = outcomes(torchrun("tests.support.ranks.state", ranks, regime, "go", str(tmp_path / "saved")))
        assert len(runs) == ranks
        notes = {note for run in runs for note in run.pop("notes")}
        lost = {f"hook 'own': the state of ranks {ranks} to {then - 1} is dropped"} if ranks < then else set()
        new = {f"hook 'own': rank {rank} was not saved, so it starts without state" for rank in range(then, ranks)}
        assert {note for note in notes if "hook 'own'" in note} == lost | new
        for run in runs:
            close(run, alone)
