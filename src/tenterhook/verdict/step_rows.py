"""Record the numbers that the examiner measures in every step."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

import torch

from tenterhook.record import TRAINING, Recorder, StepTable
from tenterhook.verdict.history import StepNumbers


def record_step(ref: weakref.ref[Recorder], names: Sequence[str], numbers: StepNumbers) -> None:
    """Record the loss, the largest learning rate and the norm of each gradient. They are on the host already."""
    recorder = ref()
    if recorder is None or not recorder.has_sinks:
        return
    norms = torch.tensor(
        [math.nan if norm is None else norm for norm in numbers.norms], dtype=torch.float64, device="cpu"
    )
    there = bytearray(norm is not None for norm in numbers.norms)
    table = StepTable(numbers.step, names, there, lambda: {"norm": norms}, width=1, device=norms.device)
    recorder.add_table(TRAINING, table, shared=True)
    if recorder.rank == 0:
        if numbers.loss is not None:
            recorder.emit(TRAINING, ".", "loss", 0, 0, numbers.loss)
        recorder.emit(TRAINING, ".", "rate", 0, 0, numbers.rate)
