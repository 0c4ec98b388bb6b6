"""Find numbers that should change but do not: a clipped gradient norm, and the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from statistics import fmean, median, pstdev

from tenterhook.record import Verdict
from tenterhook.verdict.case import Case
from tenterhook.verdict.codes import verdict
from tenterhook.verdict.history import NEAR

#: number of steps before a number is judged
ENOUGH = 30
#: the loss is flat if it varies by less than such a part of the first losses
FLAT = 0.02
#: ... or of its noise; the medians of few losses differ more by chance, by this divided by the root of their number
LITTLE, CHANCE = 0.5, 4.0
#: ... and if its second half is lower by less than such a part of the noise
STUCK = 0.3
#: ... and if it has fallen by less than such a part since the first steps
HARDLY = 0.15
#: number of the first steps
FEW = 5
#: the losses are divided into so many parts
PARTS = 6
#: a limit is too small if the real norm is so many times larger
FAR_BELOW = 10.0


def clipped_always(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the norm of all gradients has the same value in nearly every step, far below the real one."""
    totals = [total for _, total in case.history.totals if math.isfinite(total)]
    if len(totals) < ENOUGH or case.unclipped is None:
        return
    limit = median(totals)
    share = sum(abs(total - limit) <= NEAR * limit for total in totals) / len(totals)
    if limit > 0.0 and share > 0.9 and case.unclipped > FAR_BELOW * limit:
        yield verdict(
            "TH814",
            case.history.first,
            f"Gradient clipping is active in {share:.0%} of the steps: the norm of all gradients is {limit:.3g} each "
            f"time, and would be about {case.unclipped:.3g}. So only the direction of the gradient counts, and the "
            "learning rate alone decides the step size.",
            remedy="use a larger limit, if clipping is intended for rare spikes only",
        )


def is_flat(case: Case, *, steps: int | None = None) -> bool:
    """Return True if the loss is the same throughout the run, or in its first `steps` steps, apart from noise."""
    return _levels(case, steps) is not None


def _levels(case: Case, steps: int | None = None) -> tuple[float, float, float] | None:
    """Return the loss of the first steps, the lowest level afterwards and the noise, if the loss hardly changed."""
    losses = [loss for _, loss in islice(case.history.losses, steps) if math.isfinite(loss)]
    if len(losses) < 2 * ENOUGH or case.examinations:
        return None
    count = len(losses) // PARTS
    parts = [losses[start : start + count] for start in range(0, count * PARTS, count)]
    levels, noise = list(map(median, parts)), max(map(pstdev, parts[1:]))
    first = median(losses[:FEW])
    chance = max(LITTLE, CHANCE / math.sqrt(count)) * noise
    same = max(levels[1:]) - min(levels[1:]) < max(chance, FLAT * abs(first))
    half = (count + len(losses)) // 2
    fell = fmean(losses[count:half]) - fmean(losses[half:])  # means, because they differ less by chance
    stuck = fell < max(STUCK * noise, FLAT * abs(first))
    hardly = first - min(levels) < HARDLY * abs(first)
    return (first, min(levels), noise) if same and stuck and hardly else None


def no_update(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if no weight ever moved."""
    history = case.history
    same = len({length for _, length in history.lengths}) == 1  # small parameters are not sampled
    if history.steps >= ENOUGH and history.movements.measured >= ENOUGH and not history.movements.nonzero and same:
        rates = {group.rate for _, groups in history.settings for group in groups}
        yield verdict(
            "TH815",
            history.first,
            f"No weight has changed in {history.steps} steps, so the loss cannot fall"
            + (": the learning rate is 0." if rates == {0.0} else "."),
            evidence=(f"learning rates: {', '.join(f'{rate:.3g}' for rate in sorted(rates)[:5])}",),
            remedy="check the learning rate, and that the optimizer holds the parameters of this model",
        )


def flat_loss(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the loss never fell below its level at the beginning."""
    if (levels := _levels(case)) is not None and not any(no_update(case)):
        first, lowest, noise = levels
        yield verdict(
            "TH815",
            case.history.losses.first,
            f"The loss does not fall: its median was {first:.4g} in the first steps, and never below {lowest:.4g} "
            "afterwards.",
            evidence=(f"its standard deviation is {noise:.3g}",),
            remedy="check the learning rate, the labels, and that the optimizer holds the parameters of this model",
        )
