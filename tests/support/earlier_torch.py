"""Skip what an earlier torch cannot do, or does in other words."""

from __future__ import annotations

import pytest
import torch

_INSTALLED = tuple(int(part) for part in torch.__version__.split(".")[:2])


def is_before(minor: int) -> bool:
    """Return True with a torch before 2.`minor`."""
    return (2, minor) > _INSTALLED


def since(minor: int, why: str) -> pytest.MarkDecorator:
    """Skip a test with a torch before 2.`minor`. `why` says what this torch lacks."""
    return pytest.mark.skipif(is_before(minor), reason=f"torch before 2.{minor} {why}")
