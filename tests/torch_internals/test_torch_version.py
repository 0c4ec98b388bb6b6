"""Test which versions of torch are accepted, and that every place that names versions names the same ones."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest
import torch

from tenterhook.torch_internals.torch_version import FLOOR, TESTED, check_version

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["2.12.1", "2.9.0+cu128", "1.13.1"])
def test_an_older_torch_is_refused(version: str) -> None:
    with pytest.raises(ImportError) as error:
        check_version(version)
    assert str(error.value) == (
        f"tenterhook needs torch 2.13 or later, but torch {version} is installed. Earlier versions lose hooks in "
        "compiled code silently. Run pip install 'torch>=2.13'"
    )


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cpu", "2.14.1", "2.15.0a0+git1234567", torch.__version__])
def test_a_tested_torch_is_accepted(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version(version)


@pytest.mark.parametrize("version", ["2.16.0", "3.0.0.dev20270101+cpu"])
def test_a_newer_torch_is_warned_of(version: str) -> None:
    with pytest.warns(UserWarning) as warned:
        check_version(version)
    assert str(warned[0].message) == (
        f"tenterhook was tested with torch 2.13 to 2.15, but torch {version} is installed. Run your hooks once under "
        "th.examine() before you rely on them"
    )


def test_the_floor_is_the_one_that_is_installed() -> None:
    floor = ".".join(map(str, FLOOR))
    assert f'"torch>={floor}"' in (ROOT / "pyproject.toml").read_text()


def test_every_claimed_version_was_run_without_a_failure() -> None:
    ran = json.loads((ROOT / "docs" / "versions.json").read_text()).values()
    torches = {tuple(map(int, one["torch"].split(".")[:2])) for one in ran}
    assert min(torches) == FLOOR and max(torches) <= TESTED
    assert {one["failed"] for one in ran} == {0}
    claimed = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert sorted(claimed) == sorted({one["python"] for one in ran})
