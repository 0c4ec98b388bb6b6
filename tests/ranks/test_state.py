"""Saved on n ranks, restored on m: the run goes on as if nothing had happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.launch import torchrun


def told(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("told ")) for line in printed.splitlines() if line.startswith("told ")]


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


@pytest.mark.ranks
@pytest.mark.parametrize("regime", ["ddp", "fsdp2"])
def test_it_goes_on_with_another_number_of_ranks(regime: str, tmp_path: Path):
    (alone,) = told(torchrun("tests.ranks.state", 1, regime, "all", "-"))
    torchrun("tests.ranks.state", 2, regime, "save", str(tmp_path / "two"))
    for ranks in (1, 2, 4) if regime == "fsdp2" else (1,):
        runs = told(torchrun("tests.ranks.state", ranks, regime, "go", str(tmp_path / "two")))
        assert len(runs) == ranks
        for run in runs:
            run.pop("notes")
            close(run, {key: value for key, value in alone.items() if key != "notes"})
