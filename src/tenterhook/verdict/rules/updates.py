"""Explain weights that changed too much in one step: one layer was overwritten, or an update was out of proportion."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from tenterhook.record import Verdict
from tenterhook.verdict.case import Case
from tenterhook.verdict.codes import verdict

#: a layer changed suddenly if it moved so many times further than usual, and most layers did not
SUDDEN = 30.0
#: an update is out of proportion if most layers moved so many times further than usual
LARGE = 6.0
#: a change is a cause if trouble begins within so many steps
SOON = 12


def one_layer(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if one layer's weights changed suddenly before the trouble, and those of most layers did not."""
    trouble = case.trouble
    for step in range(trouble - SOON, trouble + 1) if trouble is not None else ():
        moves = case.moves(step)
        matrices = {one.name for one in case.parameters if one.dimensions >= 2}
        far = {name: factor for name, factor in moves.items() if factor > SUDDEN and name in matrices}
        if far and 2 * len(far) < len(moves) and median(moves.values()) < 4.0:
            name = max(far, key=far.__getitem__)
            yield verdict(
                "TH807",
                step,
                f"Step {step}: '{name}' changed by {far[name]:.3g} times its usual update since the step before, while "
                "most other weights changed as usual. The loss and the gradients leapt because of it.",
                target=name,
                evidence=(f"the median factor of all weights is {median(moves.values()):.3g}", *case.reasons),
                remedy=f"check what writes to '{name}' between these steps",
            )
            return


def out_of_proportion(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if most weights moved far more than usual, with a usual learning rate and usual gradients."""
    trouble = case.trouble
    for step in range(trouble - SOON, trouble + 1) if trouble is not None else ():
        moves, cause = case.moves(step), case.numbers(step - 1)
        if len(moves) < 2 or cause is None or median(moves.values()) < LARGE:
            continue
        rates = [one.rate for one in case.history.before(cause.step, 32)]
        usual = case.usual_total(cause.step)
        if not rates or usual is None or cause.rate > 2.0 * median(rates) or not cause.total < 4.0 * usual:
            return
        if math.isfinite(factor := median(moves.values())):
            yield verdict(
                "TH817",
                cause.step,
                f"Step {cause.step}: the optimizer's update was out of proportion: half of the weights moved at least "
                f"{factor:.3g} times as far as usual, although the gradients and the learning rate were as usual.",
                evidence=(
                    f"norm of all gradients: {cause.total:.3g}, usually {usual:.3g}; learning rate: {cause.rate:.3g}",
                    *case.reasons,
                ),
                remedy="check the optimizer's state, such as Adam's second moment after loading a checkpoint, and eps",
            )
        return
