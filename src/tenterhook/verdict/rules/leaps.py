"""Explain a loss or a gradient that leaps: one batch, or the gradient of one layer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from tenterhook.record import Verdict
from tenterhook.verdict.case import Case
from tenterhook.verdict.codes import verdict
from tenterhook.verdict.history import APART, NEAR
from tenterhook.verdict.rules.growth import GROWN, growth
from tenterhook.verdict.signals import LEAP
from tenterhook.verdict.unusual import HIGHER, Excursion, ParameterLeap

#: a batch differs from all others if its loss is so many times larger than the largest loss before
FOREIGN = 1.5
#: a loss is as usual if it is less than so many times the usual loss
AS_USUAL = 2.0
#: a loss has recovered if only such a part of the leap is left
BACK = 0.3
#: number of steps in which a loss must recover
WITHIN = 5
#: a batch saturates a model if half of the gradients are such a part of their usual size
FAINT = 0.01
#: the gradient of one layer leaps if it is so many times larger than usual, and than those of the other layers
FAR = 15.0
#: ... or so many times, if the program clips since then, so that the other ones nearly vanish
LARGER = 1.5
#: ... and if it stays so large for so many steps, or is so large that the step was examined
STAYS = 3
#: ... and if the norm of all gradients, unless it is clipped, is so many times larger than usual
NOTICED = 1.5


def one_batch(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the loss leapt in one step, while the weights had moved as usual."""
    for leap in sorted((*case.history.excursions.found, *_saturated(case)), key=lambda one: one.step):
        moved = case.movement(leap.step)
        after = _afterwards(case, leap)
        as_usual = (moved is None or moved.usual < 4.0) and growth(case, leap.step) < GROWN
        several = case.history.skips.get(leap.step, 0.0) >= 2.0  # the program skipped more than one batch
        if after and as_usual and not several:
            exam = next((one for one in case.examinations if one.step == leap.step), None)
            yield verdict(
                "TH808",
                leap.step,
                f"{exam.place if exam else f'Step {leap.step}'}: this batch differs from the others: the loss was "
                f"{leap.loss:.3g} instead of about {leap.usual:.3g}{after}. The weights and the settings were as "
                "usual.",
                evidence=(exam.reason,) if exam else (),
                remedy="look at the data of this step; clip the gradient norm if such batches are legitimate",
                severity="error" if case.ends_badly(leap.step) else "warning",
            )
            return


def _saturated(case: Case) -> Iterator[Excursion]:
    """Yield the steps with a higher loss than ever before, although most gradients nearly vanished.

    A batch that is far too large does not make the loss of a model with normalization layers leap, but saturates it.
    """
    found = case.history.gradients.found
    faint = {one.step for one in found if one.usual < FAINT and max(one.factors.values()) < AS_USUAL}
    highest = -math.inf
    for step, loss in case.history.losses if faint else ():
        if step in faint and highest < loss < math.inf and (usual := case.usual_loss(step)) is not None:
            yield Excursion(step, loss, usual)
        if math.isfinite(loss):
            highest = max(highest, loss)


def _afterwards(case: Case, leap: Excursion) -> str:
    """Describe how the loss went on. The text is empty if that does not show one bad batch."""
    after = case.history.losses.between(leap.step + 1, leap.step + 1 + WITHIN)
    recovered = leap.usual + BACK * (leap.loss - leap.usual)
    if leap.usual > 0.0:  # a loss that is still a million times larger than usual has not recovered
        recovered = min(recovered, max(AS_USUAL * leap.usual, math.sqrt(leap.usual * leap.loss)))
    if len(after) >= 2 and min(after[:2]) < recovered and median(after) < recovered:
        return f", and {min(after):.3g} soon afterwards"
    if after and not all(map(math.isfinite, after)):
        return ", and not finite soon afterwards"
    norm = case.usual_total(leap.step)
    later = case.history.totals.between(leap.step + 1, leap.step + 1 + WITHIN)
    past = [abs(loss) for at, loss in case.history.losses if at < leap.step and math.isfinite(loss)]
    # A new task begins with a loss like that of the first steps. A loss above all of them has another cause.
    if after and norm and min(later) > LEAP * norm and leap.loss > FOREIGN * max(past):
        return ", and the training did not recover from it"
    return ""


def one_gradient(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the gradients of one layer and of those before it leapt and stayed, with a usual loss."""
    leaps = {one.step: one for one in case.history.gradients.found}
    order = {one.name: place for place, one in enumerate(case.parameters)}
    for step, leap in leaps.items():
        # The program may clip the norm of all gradients, and then those of the other layers are smaller than usual.
        clips = leap.usual < LARGER / APART and _clips_since(case, step)
        limit = LARGER if clips else max(FAR, FAR * leap.usual)
        far = {name for name, factor in leap.factors.items() if factor > limit}
        near = [name for name, factor in leap.factors.items() if factor < 4.0]
        loss, usual = case.history.losses.get(step), case.usual_loss(step)
        total = case.history.totals.get(step)
        calm = loss is None or usual is None or abs(loss) < AS_USUAL * usual
        examined = any(one.step == step for one in case.examinations)
        stays = all(at in leaps for at in range(step, min(step + STAYS, case.history.last + 1)))
        if not stays and not (examined and _is_largest(leap, [one for at, one in leaps.items() if at < step])):
            continue
        if not far or not near or not calm or case.movement(step) is not None:
            continue
        if case.overwritten(step):  # other weights explain other gradients
            continue
        usual_total = case.usual_total(step)
        if not clips and total is not None and usual_total is not None and total < NOTICED * usual_total:
            continue  # the gradients of attention begin near zero and grow, but they are small compared with the others
        # A gradient flows from the last layer to the first, so the last layer with a leap was the first to have it.
        target = max(far, key=lambda name: order.get(name, -1))
        yield verdict(
            "TH818",
            step,
            f"Step {step}: the gradient of '{target}' is {leap.factors[target]:.3g} times its usual size, while the "
            f"loss and the gradients of {len(near)} other parameters are not larger than usual.",
            target=target,
            evidence=(f"{len(far)} of {len(leap.factors)} gradients leapt; norm of all: {total or 0.0:.3g}",),
            remedy=f"check what changes the gradient in or after '{target}', such as a hook or a custom backward",
        )
        return


def _is_largest(leap: ParameterLeap, earlier: list[ParameterLeap]) -> bool:
    """Return True if a leap is far larger than those before. A gradient that leaps now and then is usual for a run."""
    most = max((factor for one in earlier for factor in one.factors.values()), default=0.0)
    return max(leap.factors.values()) > HIGHER * most


def _clips_since(case: Case, step: int) -> bool:
    """Return True if the norm of all gradients is the same since a step, and was not the same before."""
    before = case.history.totals.between(step - STAYS, step)
    since = case.history.totals.between(step, step + STAYS)
    return _are_same(since) and not _are_same(before)


def _are_same(totals: list[float]) -> bool:
    return len(totals) == STAYS and max(totals) <= (1.0 + NEAR) * min(totals)
