"""Skip a test of what an earlier torch cannot do, or does in other words."""

from __future__ import annotations

import pytest
import torch

_INSTALLED = tuple(int(part) for part in torch.__version__.split(".")[:2])


def since(minor: int, why: str) -> pytest.MarkDecorator:
    """Skip a test with a torch before 2.`minor`. `why` says what this torch lacks."""
    return pytest.mark.skipif((2, minor) > _INSTALLED, reason=f"torch before 2.{minor} {why}")
