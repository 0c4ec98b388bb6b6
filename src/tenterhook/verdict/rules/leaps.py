"""Explain a loss or a gradient that leaps: one batch, one layer's gradient, or a training that explodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from tenterhook.record import Verdict
from tenterhook.verdict.case import Case
from tenterhook.verdict.codes import verdict
from tenterhook.verdict.rules.growth import GROWN, growth
from tenterhook.verdict.signals import LEAP
from tenterhook.verdict.unusual import Excursion

#: a batch differs from all others if its loss is so many times larger than the largest loss before
FOREIGN = 1.5
#: a loss is as usual if it is less than so many times the usual loss
AS_USUAL = 2.0
#: a loss has recovered if only such a part of the leap is left
BACK = 0.3
#: number of steps in which a loss must recover
WITHIN = 5
#: the gradient of one layer leaps if it is so many times larger than usual, and those of most layers are not
FAR = 30.0


def one_batch(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the loss leapt in one step, while the weights had moved as usual."""
    for leap in case.history.excursions.found:
        moved = case.movement(leap.step)
        after, recovered = _afterwards(case, leap)
        as_usual = (moved is None or moved.usual < 4.0) and growth(case, leap.step) < GROWN
        if after and as_usual:
            exam = next((one for one in case.examinations if one.step == leap.step), None)
            yield verdict(
                "TH808",
                leap.step,
                f"{exam.place if exam else f'Step {leap.step}'}: this batch differs from the others: the loss was "
                f"{leap.loss:.3g} instead of about {leap.usual:.3g}{after}. The weights and the settings were as "
                "usual.",
                evidence=(exam.reason,) if exam else (),
                remedy="look at the data of this step; clip the gradient norm if such batches are legitimate",
                severity="warning" if recovered else "error",
            )
            return


def _afterwards(case: Case, leap: Excursion) -> tuple[str, bool]:
    """Say how the loss went on, and whether it recovered. The text is empty if that does not show one bad batch."""
    after = [later for at, later in case.history.losses if leap.step < at <= leap.step + WITHIN]
    recovered = leap.usual + BACK * (leap.loss - leap.usual)
    if len(after) >= 2 and min(after[:2]) < recovered and median(after) < recovered:
        return f", and {min(after):.3g} soon afterwards", True
    if after and not all(map(math.isfinite, after)):
        return ", and not finite soon afterwards", False
    norm = case.usual_total(leap.step)
    later = [total for at, total in case.history.totals if leap.step < at <= leap.step + WITHIN]
    past = [abs(loss) for at, loss in case.history.losses if at < leap.step and math.isfinite(loss)]
    # A new task begins with a loss like that of the first steps. A loss above all of them has another cause.
    if after and norm and min(later) > LEAP * norm and leap.loss > FOREIGN * max(past):
        return ", and the training did not recover from it", False
    return "", False


def one_gradient(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the gradients of one layer and of those before it leapt, while the loss was as usual."""
    trouble = case.trouble
    numbers = case.numbers(trouble) if trouble is not None else None
    if numbers is None or trouble is None:
        return
    loss, usual_loss = numbers.loss, case.usual_loss(trouble)
    if loss is None or usual_loss is None or not abs(loss) < AS_USUAL * usual_loss:
        return
    usual = case.history.usual_norms(trouble)
    ratios = {
        name: now / past
        for name, now, past in zip(case.history.names, numbers.norms, usual, strict=False)
        if now is not None and past and math.isfinite(now)
    }
    far = [name for name, ratio in ratios.items() if ratio > FAR]
    near = [name for name, ratio in ratios.items() if ratio < 4.0]
    if not far or not near:
        return
    # A gradient flows from the last layer to the first, so the last layer with a leap was the first to have it.
    order = {one.name: place for place, one in enumerate(case.parameters)}
    target = max(far, key=lambda name: order.get(name, -1))
    yield verdict(
        "TH818",
        trouble,
        f"Step {trouble}: the gradient of '{target}' is {ratios[target]:.3g} times its usual size, while the loss and "
        f"the gradients of {len(near)} other parameters are as usual.",
        target=target,
        evidence=(f"{len(far)} of {len(ratios)} gradients leapt", case.examinations[0].reason),
        remedy=f"check what changes the gradient in or after '{target}', such as a hook or a custom backward function",
    )
