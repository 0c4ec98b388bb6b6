"""Find settings of the optimizer that break the training: a learning rate that jumps, and too much weight decay."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, pairwise

from tenterhook.record import Verdict
from tenterhook.verdict.case import Case
from tenterhook.verdict.codes import verdict
from tenterhook.verdict.rules.growth import GROWN, growth

#: a learning rate jumps if it is so many times larger than in the step before
JUMP = 4.0
#: a jump is a cause if trouble begins within so many steps
SOON = 25
#: weight decay is too strong if it removes such a part of the weights in one step
STRONG = 0.02


def learning_rate(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the learning rate jumped, and the training broke or became worse soon afterwards."""
    highest = 0.0
    for (_, before), (step, now) in pairwise(case.history.settings):
        usual = max((group.rate for group in before), default=0.0)
        largest = max((group.rate for group in now), default=0.0)
        highest = max(highest, usual)
        if not largest > JUMP * usual > 0.0 or not (harm := case.harm(step, SOON)):
            continue
        # A schedule with restarts returns to a learning rate that it had before, and the loss rises for a while.
        if harm.startswith("The loss rose") and largest <= JUMP * highest:
            continue
        yield verdict(
            "TH805",
            step,
            f"Step {step}: the learning rate jumped from {usual:.3g} to {largest:.3g}, {largest / usual:.0f} times the "
            f"value before. {harm}",
            evidence=case.reasons,
            remedy="check the learning-rate schedule at this step",
        )
        return


def weight_decay(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if weight decay removes a large part of the weights in every step."""
    measured = [(at, length) for at, length in case.history.lengths if math.isfinite(length)]
    shortest = list(accumulate(reversed(measured), _shorter))[::-1]
    for step, groups in case.history.settings:
        strongest = max((group.rate * group.decay for group in groups), default=0.0)
        place = bisect_left(measured, step, key=lambda one: one[0])
        if strongest < STRONG or place > len(measured) - 2:
            continue
        first, last = measured[place], shortest[place]
        shrunk = last[1] / max(first[1], 1e-30)
        # Weights that exploded before shrink again, because weight decay is stronger for larger weights.
        if shrunk < 0.7 and growth(case, first[0]) < GROWN:
            yield verdict(
                "TH809",
                step,
                f"Step {step}: weight decay removes {strongest:.1%} of the weights in every step. From step "
                f"{first[0]} to step {last[0]}, the norms of the weights fell to {shrunk:.0%}.",
                evidence=(f"learning rate times weight decay is {strongest:.3g}",),
                remedy="use a smaller weight_decay; values from 0.0 to 0.1 are usual with AdamW",
            )
            return


def _shorter(later: tuple[int, float], one: tuple[int, float]) -> tuple[int, float]:
    return one if one[1] <= later[1] else later
