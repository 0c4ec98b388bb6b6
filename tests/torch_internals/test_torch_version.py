"""Test which versions of torch are accepted."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from tenterhook.torch_internals.torch_version import FLOOR, check_version

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["2.9.1", "2.8.0+cu128", "1.13.1"])
def test_an_older_torch_is_refused(version: str) -> None:
    with pytest.raises(ImportError) as error:
        check_version(version)
    assert str(error.value) == (
        f"tenterhook needs torch 2.10 or later, but torch {version} is installed. With earlier versions, hooks in "
        "compiled code may be lost silently. Run pip install 'torch>=2.10'"
    )


@pytest.mark.parametrize("version", ["2.10.0", "2.13.0+cpu", "2.14.1", "2.15.0a0+git1234567", torch.__version__])
def test_a_tested_torch_is_accepted(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version(version)


@pytest.mark.parametrize("version", ["2.16.0", "3.0.0.dev20270101+cpu"])
def test_a_newer_torch_is_warned_of(version: str) -> None:
    with pytest.warns(UserWarning) as warned:
        check_version(version)
    assert str(warned[0].message) == (
        f"tenterhook was tested with torch 2.10 to 2.15, but torch {version} is installed. Run your hooks once under "
        "th.examine() before you rely on them"
    )


def test_the_floor_is_the_one_that_is_installed() -> None:
    floor = ".".join(map(str, FLOOR))
    assert f'"torch>={floor}"' in (ROOT / "pyproject.toml").read_text()


def test_the_version_is_checked_before_anything_private_is_read() -> None:
    program = "import torch; torch.__version__ = '2.6.0'; del torch._foreach_norm; import tenterhook.torch_internals"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: tenterhook needs torch 2.10 or later, but torch 2.6.0")
