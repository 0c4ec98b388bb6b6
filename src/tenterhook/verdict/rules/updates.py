"""Explain weights that changed too much in one step: one layer was overwritten, or an update was out of proportion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from statistics import median

from tenterhook.record import Verdict
from tenterhook.verdict.case import LONG, SUDDEN, Case
from tenterhook.verdict.codes import verdict
from tenterhook.verdict.rules.settings import learning_rate
from tenterhook.verdict.unusual import ParameterLeap

#: a layer was overwritten if it moved so many times further, even if that did no harm
OVERWRITTEN = 1000.0
#: an update is out of proportion if most layers moved so many times further than usual
LARGE = 6.0
#: gradients are as usual if they are less than so many times larger
NEAR = 4.0
#: a large gradient moves the weights for so many steps, because of momentum
MEMORY = 10


def one_layer(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if one layer's weights changed suddenly, those of most layers did not, and that did harm."""
    matrices = {one.name for one in case.parameters if one.dimensions >= 2}
    leaps = {one.step: one.factors for one in case.history.gradients.found}
    for moved in _unexplained(case):
        pulled = leaps.get(moved.step - 1, {})  # a large gradient explains a large update
        far = {
            name: factor
            for name, factor in moved.factors.items()
            if factor > SUDDEN and name in matrices and pulled.get(name, 1.0) < LARGE
        }
        if not far or moved.usual > LARGE or _modules(far) * 2 > _modules(moved.factors):
            continue
        name = max(far, key=far.__getitem__)
        harm = case.harm(moved.step)
        if harm or far[name] > OVERWRITTEN:
            yield verdict(
                "TH807",
                moved.step,
                f"Step {moved.step}: '{name}' had changed by {far[name]:.3g} times its usual update since the step "
                f"before, while most other weights had changed as usual. {harm or 'The loss did not leap.'}",
                target=name,
                evidence=(f"the median factor of all weights is {moved.usual:.3g}", *case.reasons),
                remedy=f"check what writes to '{name}' between these steps",
                severity="error" if case.ends_badly(moved.step) else "warning",
            )
            return


def out_of_proportion(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if most weights moved far more than usual, with a usual learning rate and usual gradients."""
    totals, rates = case.history.totals, case.history.rate_at
    for moved in _unexplained(case):
        cause = moved.step - 1
        usual, total = case.usual_total(cause), totals.get(cause)
        far = [name for name, factor in moved.factors.items() if factor > LARGE]
        if _modules(far) < 2 or not LARGE <= moved.usual < math.inf or usual is None or total is None:
            continue
        largest = max(totals.between(cause - MEMORY, cause + 1))
        # Momentum makes an update at most as many times larger as one of the gradients before it was.
        pulled = total >= NEAR * usual or largest >= max(NEAR, moved.usual / LARGE) * usual
        steady = rates(cause) <= 2.0 * median(map(rates, range(cause - 16, cause)))
        if steady and not pulled and (harm := case.harm(moved.step)):
            yield verdict(
                "TH817",
                cause,
                f"Step {cause}: the optimizer's update was out of proportion: half of the weights moved at least "
                f"{moved.usual:.3g} times as far as usual, although the gradients and the learning rate were as usual. "
                f"{harm}",
                evidence=(f"norm of all gradients: {total:.3g}, usually {usual:.3g}", *case.reasons),
                remedy="check the optimizer's state, such as Adam's second moment after loading a checkpoint, and eps",
            )
            return


def _unexplained(case: Case) -> list[ParameterLeap]:
    """Return the steps before which weights moved far, except those soon after a learning rate that broke the run."""
    broken = next((one.step for one in learning_rate(case)), math.inf)
    return [one for one in case.history.movements.found if not 0 < one.step - broken <= LONG]


def _modules(names: Iterable[str]) -> int:
    """Return the number of modules that have these parameters."""
    return len({name.rpartition(".")[0] for name in names})
