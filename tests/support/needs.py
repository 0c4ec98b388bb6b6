"""Skip tests whose packages are not installed."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def needs(package: str) -> Any:
    """Import a package that the `test` extra does not install. Without it, skip the test; in CI, fail."""
    if os.environ.get("CI"):
        return importlib.import_module(package)
    return pytest.importorskip(package)
