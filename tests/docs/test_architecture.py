"""Test that every name on the architecture page exists, and that its two walks match a real run."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = list(dict.fromkeys(re.findall(r"`([a-z_/]+\.py): (\w+(?:\.\w+)*)`", PAGE)))


def test_the_page_names_enough() -> None:
    assert len(NAMED) > 25


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_is_named_is_there(file: str, name: str) -> None:
    found = importlib.import_module("tenterhook." + file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:docs|tests|scripts|actions|rig|doctor|record)/[\w/.]+)`", PAGE)))
)
def test_paths_are_there(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "src" / "tenterhook" / path).exists()


def layers(block: str) -> list[set[str]]:
    return [set(re.findall(r"\w+", line[:51])) for line in block.strip().splitlines()]


def test_the_picture_is_the_contract() -> None:
    """Compare the picture of the layers with the list that import-linter reads."""
    settings = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r'containers = \["tenterhook"\]\nlayers = \[(.*?)\n\]', settings, re.DOTALL)
    assert listed is not None
    wanted = [set(re.findall(r"\w+", line)) for line in listed[1].strip().splitlines()]
    drawn = re.search(r"```\n(cli .*?)```", PAGE, re.DOTALL)
    assert drawn is not None and layers(drawn[1]) == wanted


#: the functions that the two walks of the page name, in the order of the page
WALK = (
    ("rig/points/calling.py", "fire"),
    ("rig/runtime/attached_hook.py", "AttachedHook.in_phase"),
    ("actions/stats.py", "_measure_stats"),
    ("rig/runtime/hook_state.py", "Partials.add"),
    ("rig/runtime/attached_hook.py", "Site.count"),
    ("rig/step/optimizer_step.py", "OptimizerStep._pre"),
    ("rig/step/end_of_step.py", "StepFinalizer.end_step"),
    ("record/recorder.py", "Recorder.flush"),
    ("record/store.py", "Store.write"),
)


@pytest.mark.pages
def test_the_walks_are_the_ones_that_are_taken() -> None:
    walk = subprocess.run(
        [sys.executable, ROOT / "scripts" / "path"], capture_output=True, text=True, check=True
    ).stdout
    called = [line.removeprefix("-> ").split()[1:3] for line in walk.splitlines()[:-1]]
    at = -1
    for file, name in WALK:
        assert file in PAGE
        at = next(n for n, (where, what) in enumerate(called) if n > at and where == file and what.endswith(name))
    # The rig learns that a step has ended, and `contain` calls the recorder and the sink that it is given.
    counted = re.search(r"(\d+) changes of file, 3 calls up a layer", walk)
    assert counted is not None and int(counted[1]) < 80
