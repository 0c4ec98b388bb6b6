"""Test what one rank does alone in a training. `tests.support.ranks.transitions` runs all cells on two ranks."""

from __future__ import annotations

import pytest

from tests.support.ranks.launch import torchrun

#: the outcome of each cell; the other cells differ only in the point or in the call that the other rank misses
CELLS = {
    "DDP nothing grad modify": "exact",
    "DDP skip update observe": "exact",
    "DDP skip grad_final modify": "typed",
    "DDP detach grad_final observe": "exact",
    "DDP detach output modify": "typed",
    "DDP mute grad modify": "typed",
    "FSDP2 nothing grad_final modify": "exact",
    "FSDP2 skip grad_final observe": "typed",
    "FSDP2 detach update observe": "typed",
    "FSDP2 remove grad_final modify": "typed",
    "FSDP2 reload update observe": "typed",
}


@pytest.mark.ranks
def test_one_rank_alone():
    printed = torchrun("tests.support.ranks.transitions", 2, *CELLS)
    found = dict(line.removeprefix("cell ").split(": ", 1) for line in printed.splitlines() if line.startswith("cell "))
    assert {cell: outcome.split()[0] for cell, outcome in found.items()} == CELLS
    assert "1 of 2 ranks did not call remove within 2 s: 0" in found["FSDP2 remove grad_final modify"]
