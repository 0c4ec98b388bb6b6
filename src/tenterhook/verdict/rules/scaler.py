"""Find a loss scale that collapses: the program skips one step after another."""

from __future__ import annotations

from collections.abc import Iterator

from tenterhook.record import Verdict
from tenterhook.verdict.case import Case
from tenterhook.verdict.codes import verdict

#: a step that was skipped so often in a row is not a part of the scale's warm-up: 16 halves of 65,536 are 1
MANY = 16
#: ... nor one that was skipped so often, if the training ended there
UNFINISHED = 8


def scale_collapse(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if a step was skipped too often in a row."""
    for step, count in case.history.skips.items():
        if count >= MANY or (count >= UNFINISHED and step > case.history.last):
            yield verdict(
                "TH816",
                step,
                f"Step {step}: the loss scale collapses: {case.history.skipped_passes[step]} passes in a row had "
                "gradients that were not finite in float16, whatever the scale, so the program skipped this step again "
                "and again.",
                evidence=("the scaler halves the scale each time",),
                remedy="use bfloat16, or keep the values that overflow in float32",
            )
            return
