"""Find a training that explodes: the gradients, the weights or the loss grow and do not return."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice
from statistics import median

from tenterhook.record import Verdict
from tenterhook.verdict.case import Case
from tenterhook.verdict.codes import verdict
from tenterhook.verdict.signals import LEAP

#: gradients grow if they are far larger than usual in so many steps
GROWING = 3
#: weights have grown if the sum of their norms is so many times larger than at the beginning
GROWN = 3.0
#: ... and they explode if it is so many times larger
EXPLODED = 10.0
#: ... or so many times larger after so few steps, which no healthy training needs
EARLY, BEGIN = 5.0, 32
#: the loss explodes if it is so many times larger at the end than in any of the first steps
LOST = 10.0
#: the loss has fallen if it is less than such a part of the first losses
FALLEN = 0.9
#: ... unless it was so many times larger than the first loss while the weights grew
PEAK = 2.0
#: number of the first and last losses that are compared
FEW = 10

REMEDY = "use a lower learning rate, a longer warm-up, or clip the gradient norm"


def growth(case: Case, step: int) -> float:
    """Return how many times larger the weights are in a step than at the beginning."""
    past = [length for at, length in case.history.lengths if at <= step and math.isfinite(length)]
    return past[-1] / past[0] if past and past[0] > 0.0 else 1.0


def explosion(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the gradients or the loss grew and did not return, unless the weights explain it."""
    if not any(growing_weights(case)):
        yield from islice(chain(_gradients(case), _loss(case)), 1)


def growing_weights(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the weights grew, and the loss did not fall or the weights still grow at the end."""
    lengths = [(at, length) for at, length in case.history.lengths if math.isfinite(length)]
    if not lengths or lengths[0][1] == 0.0:
        return
    early = max(length for at, length in lengths if at <= lengths[0][0] + BEGIN) / lengths[0][1]
    if lengths[-1][1] < EXPLODED * lengths[0][1] and early < EARLY:
        return
    begin = next(at for at, length in lengths if length > GROWN * lengths[0][1])
    largest = max(length for _, length in lengths)
    negative = any(group.decay < 0.0 for _, groups in case.history.settings for group in groups)
    half = next(length for at, length in lengths if at >= (lengths[0][0] + lengths[-1][0]) / 2)
    if not negative and _learns(case, begin) and lengths[-1][1] < GROWN * half:
        return
    yield verdict(
        "TH806",
        begin,
        f"Step {begin}: the training explodes: the sum of the norms of all weights grew from {lengths[0][1]:.3g} to "
        f"{largest:.3g}.",
        evidence=("the weight decay is negative",) if negative else (),
        remedy="check the sign of the weight decay" if negative else REMEDY,
    )


def _learns(case: Case, begin: int) -> bool:
    """Return True if the loss has fallen while the weights have grown. A small model may need larger weights."""
    losses = case.history.losses
    first = [loss for _, loss in islice(losses, 3)]
    before, after = losses.between(losses.first, begin), losses.between(begin, begin + 2 * FEW)
    if not after or not all(map(math.isfinite, after)):
        return False
    rose = first[0] > 0.0 and max(before, default=0.0) > PEAK * first[0]
    return median(after) < FALLEN * min(first) and not rose


def _gradients(case: Case) -> Iterator[Verdict]:
    totals = [(step, total) for step, total in case.history.totals if math.isfinite(total)]
    ended = len(totals) < len(case.history.totals)
    trouble = case.trouble
    if len(totals) < 2 or (trouble is None and not ended):
        return
    begin = trouble if trouble is not None else totals[-1][0]
    early = [total for step, total in totals if step < max(begin - 8, 5)] or [total for _, total in totals[:3]]
    usual, largest = median(early), max(total for _, total in totals)
    later = [total for step, total in totals if step >= begin]
    stays = ended or (bool(later) and median(later) > LEAP * usual)
    large = [step for step, total in totals if total > LEAP * usual and step >= begin - 8]
    if usual > 0.0 and largest > 100.0 * usual and stays and len(large) >= GROWING:
        yield verdict(
            "TH806",
            large[0],
            f"Step {large[0]}: the training explodes: from here on, the norm of all gradients grew from about "
            f"{usual:.3g} to {largest:.3g}" + (", until it was not finite." if ended else "."),
            evidence=case.reasons,
            remedy=REMEDY,
        )


def _loss(case: Case) -> Iterator[Verdict]:
    losses = [(at, loss) for at, loss in case.history.losses if math.isfinite(loss)]
    if len(losses) < 3 * FEW:
        return
    first, last = [abs(loss) for _, loss in losses[:FEW]], median(loss for _, loss in losses[-FEW:])
    if last > LOST * max(first) > 0.0:
        begin = next(at for at, loss in losses if loss > 2.0 * max(first))
        yield verdict(
            "TH806",
            begin,
            f"Step {begin}: the training explodes: the loss rose from {median(first):.3g} at the beginning to "
            f"{last:.3g} at the end.",
            evidence=case.reasons,
            remedy=REMEDY,
        )
