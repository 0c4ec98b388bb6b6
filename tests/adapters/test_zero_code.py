"""Run `tenterhook run` on some typical training scripts; `scripts/zero-code` runs all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.adapters.zero_code import SCRIPTS, compare
from tests.support.warm_python import warm_python

pytestmark = pytest.mark.programs

#: the scripts of this test: two models, two optimizers of one model, a model that is replaced half-way, several ranks
FEW = ("gan", "two_optimizers", "unfreeze", "resume", "ddp", "fsdp2")
#: for each script, the run folders and their first and last step
MODELS = {
    "gan": {"Discriminator": (0, 59), "Generator": (0, 59)},
    "two_optimizers": {"TinyLM": (0, 49)},
    "unfreeze": {"GlyphNet": (0, 49)},
    "resume": {"Regressor": (0, 39)},
    "ddp": {"Sequential": (0, 31)},
    "fsdp2": {"Transformer": (0, 29)},
}


@pytest.mark.slice(2)
@pytest.mark.parametrize("script", [s for s in SCRIPTS if s.stem in FEW], ids=lambda s: s.stem)
def test_a_script_is_watched_and_its_losses_are_the_same(script: Path, tmp_path: Path):
    outcome = compare(script, tmp_path, sys.executable if script.stem == "resume" else warm_python())
    assert outcome.watched == outcome.bare and outcome.losses >= 25
    assert (outcome.code, outcome.errors) == (0, []), outcome.said
    steps = {name: run.sql("select min(step), max(step) from rows where hook = 'training'").fetchall()[0]
             for name, run in outcome.runs.items()}  # fmt: skip
    assert steps == MODELS[script.stem]
    assert 100_000 < outcome.report < 1_500_000
    assert "Warning: tenterhook" not in outcome.said
