"""Compare clipping and statistics at `grad_final` with DDP and FSDP2 on two processes with the same written by hand."""

from __future__ import annotations

import sys

import pytest

from tests.support.ranks.launch import torchrun


@pytest.mark.ranks
@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_ranks(kind):
    printed = torchrun("tests.support.ranks.smoke", 2, kind, python=sys.executable)
    assert all(f"rank {r}: {kind} exact" in printed for r in (0, 1))
