"""Test that one plan on a tiny Llama gives the same numbers in four regimes, and the weights of a loop written by hand.

`scripts/llama` runs 200 steps.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.support.ranks.launch import ROOT, torchrun
from tests.support.ranks.llama import RANKS
from tests.support.warm_python import RANKS as PRELOADED
from tests.support.warm_python import warm_python

STATISTICS = 1e-5
WEIGHTS = 1e-9


def made(regime: str, steps: int) -> dict[str, Any]:
    if regime == "single":
        command = [warm_python(*PRELOADED), "-m", "tests.support.ranks.llama", regime, str(steps)]
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    else:
        printed = torchrun("tests.support.ranks.llama", RANKS[regime], regime, str(steps), timeout=1200)
    (line,) = [line for line in printed.splitlines() if line.startswith("made ")]
    return json.loads(line.removeprefix("made "))


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the largest relative difference between the recorded numbers of two runs."""
    found = 0.0
    for a, b in zip(one["numbers"], other["numbers"], strict=True):
        assert a.keys() == b.keys()
        for hook, targets in a.items():
            assert targets.keys() == b[hook].keys() and targets
            for target, numbers in targets.items():
                size = max(abs(v) for k, v in numbers.items() if k not in ("zeros", "nonfinite"))
                for name, value in numbers.items():
                    found = max(found, abs(value - b[hook][target][name]) / max(size, 1e-30))
    return found


def compare(steps: int) -> dict[str, tuple[float, float]]:
    """Return how far each regime is from the loop by hand in its weights, and from one process in its numbers."""
    runs = {regime: made(regime, steps) for regime in RANKS}
    return {regime: (run["apart"], apart(run, runs["single"])) for regime, run in runs.items()}


@pytest.mark.ranks
def test_four_regimes():
    for regime, (weights, numbers) in compare(12).items():
        assert weights <= WEIGHTS and numbers <= STATISTICS, (regime, weights, numbers)
