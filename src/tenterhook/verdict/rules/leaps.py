"""Explain a loss or a gradient that leaps: one layer, one batch, or a training that explodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from tenterhook.verdict.case import Case
from tenterhook.verdict.signals import LEAP
from tenterhook.verdict.verdicts import Verdict

#: a layer's weights changed suddenly if their norm changed by such a factor, and those of most layers did not
CHANGED = 3.0
#: a loss has recovered if it is less than so many times the usual loss
RECOVERED = 2.0
#: number of steps in which a loss must recover
WITHIN = 5


def one_layer(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the weights of one layer changed suddenly before the trouble, and those of most did not."""
    measured = [one for one in case.history.recent if one.weights is not None and one.step <= (case.trouble or -1)]
    if len(measured) < 2 or measured[-1].step != case.trouble:
        return
    before, now = measured[-2], measured[-1]
    matrices = {one.name for one in case.parameters if one.dimensions >= 2}
    pairs = zip(case.history.names, before.weights or (), now.weights or (), strict=True)
    ratios = {name: new / old for name, old, new in pairs if name in matrices and old > 0.0 and math.isfinite(new)}
    if not ratios or not 1 / 1.5 < median(ratios.values()) < 1.5:
        return
    name, ratio = max(ratios.items(), key=lambda item: abs(math.log(max(item[1], 1e-30))))
    if ratio > CHANGED or ratio < 1 / CHANGED:
        yield Verdict(
            "TH807",
            now.step,
            name,
            f"Step {now.step}: the norm of '{name}' changed by a factor of {ratio:.3g} since step {before.step}, "
            "while most other weights stayed as they were. The loss and the gradients changed because of it.",
            (f"the median factor of all weights is {median(ratios.values()):.3g}", case.examinations[0].reason),
            f"check what writes to '{name}' between these steps",
        )


def one_batch(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the loss leapt in one step and returned, while weights and settings were as usual."""
    for exam in case.examinations:
        loss, usual = dict(case.history.losses).get(exam.step), case.usual_loss(exam.step)
        total, norm = dict(case.history.totals).get(exam.step), case.usual_total(exam.step)
        if loss is None or usual is None or total is None or norm is None or not math.isfinite(loss + total):
            continue
        after = [abs(later) for at, later in case.history.losses if exam.step < at <= exam.step + WITHIN]
        leapt = abs(loss) > 3.0 * usual or total > LEAP * norm
        if leapt and len(after) >= 2 and min(after) < RECOVERED * usual:
            yield Verdict(
                "TH808",
                exam.step,
                "",
                f"Step {exam.step}: this batch differs from the others: the loss was {loss:.3g} instead of about "
                f"{usual:.3g}, and {min(after):.3g} soon afterwards. The weights and the settings were as usual.",
                (exam.reason,),
                "look at the data of this step; clip the gradient norm if such batches are legitimate",
            )
            return


def explosion(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if loss and gradients grew and did not return."""
    trouble = case.trouble
    if trouble is None:
        return
    totals = [(step, total) for step, total in case.history.totals if math.isfinite(total)]
    early = [total for step, total in totals if step < max(trouble - 8, 5)] or [total for _, total in totals[:3]]
    if not early or not totals:
        return
    usual, largest = median(early), max(total for _, total in totals)
    ended = not all(math.isfinite(total) for _, total in case.history.totals)
    later = [total for step, total in totals if step >= trouble]
    stays = ended or (bool(later) and median(later) > LEAP * usual)
    if usual > 0.0 and largest > 100.0 * usual and stays:
        begin = next(step for step, total in totals if total > LEAP * usual)
        yield Verdict(
            "TH806",
            begin,
            "",
            f"Step {begin}: the training explodes: from here on, the norm of all gradients grew from about {usual:.3g} "
            f"to {largest:.3g}" + (", until it was not finite." if ended else "."),
            tuple(f"step {one.step}: {one.reason}" for one in case.examinations[:3]),
            "use a lower learning rate, a longer warm-up, or clip the gradient norm",
        )
