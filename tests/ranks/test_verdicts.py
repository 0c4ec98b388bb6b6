"""Test that all ranks report a training that breaks on one of them."""

from __future__ import annotations

import pytest

from tests.support.ranks.launch import torchrun

PRODUCED = (
    "TH801 Step 12, rank 1: '2' produced the first infinity in the forward pass, in the operation div; its input was "
    "finite. Everything after it is a consequence."
)
BATCH = "TH808 Step 12, rank 1: this batch differs from the others: the loss was "


@pytest.mark.ranks
def test_all_ranks_report_the_fault_of_one_rank():
    lines = torchrun("tests.support.ranks.verdicts", 2).splitlines()
    for rank in (0, 1):
        said = {
            name: text for line in lines if line.startswith(f"rank {rank}: ") for _, name, text in [line.split(": ", 2)]
        }
        assert said["ddp module"] == said["ddp accumulated"] == said["fsdp module"] == PRODUCED
        assert said["ddp data"].startswith(BATCH) and said["fsdp data"].startswith(BATCH)
        assert said["ddp unchanged"] == said["fsdp unchanged"] == "the same weights"
        failures = ["RuntimeError('another rank could not measure its gradients')", "MemoryError('planted')"]
        assert said["ddp failing"] == failures[rank]
