"""Find layers that do not train: no gradient, a gradient of zero, or one that is far too small."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from tenterhook.record import Verdict
from tenterhook.verdict.case import Case
from tenterhook.verdict.codes import verdict
from tenterhook.verdict.history import EARLY, Arrivals
from tenterhook.verdict.rules.constant import is_flat

#: number of steps before a layer is judged
ENOUGH = 20
#: everything is learnt if the norm of all gradients has fallen to such a part
LEARNT = 1e-6
#: a gradient has stopped if it is missing for so many times its longest absence before
STOPPED = 5
#: gradients vanish if those of the first layers are so many times smaller than those of the others
VANISHED = 1e-4
#: ... or so many times smaller, if the loss does not fall either
STUCK_TOO = 1e-3
#: the median of at least so many of the first layers, or a third of them, is compared with that of the others
FEWEST = 3
_NUMBER = re.compile(r"\d+")


def _missing(case: Case, kind: Sequence[Arrivals]) -> list[tuple[str, int]]:
    """Return the parameters whose gradients of a kind never arrived or stopped, each with the first step without."""
    history, found = case.history, []
    trains = {one.name for one in case.parameters if one.trains}
    for name, one in zip(history.names, kind, strict=True):
        absent = history.last - one.last if one.count else history.steps
        if name in trains and absent >= ENOUGH and (not one.count or absent > STOPPED * one.longest_gap):
            found.append((name, one.last + 1 if one.count else history.first))
    found = [(name, step) for name, step in found if step == history.first or _is_blocked(case, name, found)]
    return found if len(found) < len(trains) else []


def _is_blocked(case: Case, name: str, missing: list[tuple[str, int]]) -> bool:
    """Return True if something blocks the gradient of a parameter that had one before.

    Programs drop a part of a model on purpose, such as an auxiliary head. But if the first layers have no gradient, or
    one of several layers of the same kind, that is hardly a purpose.
    """
    names = {one for one, _ in missing}
    alike = {one.name for one in case.parameters if one.trains and _kind(one.name) == _kind(name)}
    first = next((one.name for one in case.parameters if one.trains and one.held), None)
    return first in names or bool(alike - names)


def _kind(name: str) -> str:
    """Return what layers of the same kind have in common: the name without numbers."""
    return _NUMBER.sub("*", name)


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _cause(case: Case, missing: list[tuple[str, int]]) -> tuple[str, int]:
    """Return the parameter that explains the others: the last one of the earliest group.

    A gradient flows from the last layer to the first. So if a layer blocks it, all layers before it have none. A
    parameter counts only if all parameters of its module are missing: the layer after a dead one has zeros in its
    weight, but not in its bias.
    """
    first = min(step for _, step in missing)
    names = {name for name, step in missing if step <= first + 2}
    partly = {_module(one.name) for one in case.parameters if one.trains and one.name not in names}
    whole = [name for name, _ in missing if name in names and _module(name) not in partly]
    order = {one.name: place for place, one in enumerate(case.parameters)}
    target = max(whole or names, key=lambda name: order.get(name, -1))
    module = [name for name in whole or names if _module(name) == _module(target)]
    return min(module, key=lambda name: order.get(name, -1)), first


def never_reached(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if parameters of the optimizer receive no gradient, while others do."""
    if case.history.steps >= ENOUGH and not any(one.count for one in case.history.arrived):
        yield verdict(
            "TH812",
            case.history.first,
            f"None of the {len(case.history.names)} parameters in the optimizer received a gradient in "
            f"{case.history.steps} steps: the loss does not depend on this model.",
            remedy="check that the optimizer holds the parameters of the model that computes the loss",
        )
        return
    missing = _missing(case, case.history.arrived)
    if missing:
        name, step = _cause(case, missing)
        it = "them" if len(missing) > 1 else "it"
        since = f"since step {step}" if step > case.history.first else f"in all {case.history.steps} steps"
        yield verdict(
            "TH812",
            step,
            f"'{name}'{_others(missing)} received no gradient {since}: the loss does not depend on {it}, or the code "
            f"detaches {it}.",
            target=name,
            evidence=(f"{len(missing)} of {len(case.history.names)} parameters in the optimizer have no gradient",),
            remedy=f"check that the forward pass uses {it}, and look for detach() and torch.no_grad() after {it}",
        )


def idle_optimizer(name: str, steps: int) -> Verdict | None:
    """Return the verdict about an optimizer whose parameters belong to no module and never had a gradient, if any."""
    if steps < ENOUGH:
        return None
    return verdict(
        "TH812",
        0,
        f"None of the parameters in {name} received a gradient in {steps} steps, and no module holds them: the program "
        "trains another model than the one that it gave to the optimizer.",
        remedy="create the optimizer from the parameters of the model that computes the loss",
    )


def dead_layers(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the gradient of a parameter is exactly zero from some step on."""
    without = {name for name, _ in _missing(case, case.history.arrived)}
    dead = [one for one in _missing(case, case.history.nonzero) if one[0] not in without]
    matrices = {one.name for one in case.parameters if one.dimensions >= 2}
    # A bias alone may cancel out, and when everything is learnt, gradients fall to zero.
    if any(name in matrices for name, _ in dead) and not _is_learnt(case):
        name, step = _cause(case, dead)
        since = f"since step {step}" if step > case.history.first else f"in all {case.history.steps} steps"
        yield verdict(
            "TH811",
            step,
            f"'{name}'{_others(dead)} had a gradient of exactly zero {since}: the layer is dead, or nothing that "
            "depends on it reaches the loss.",
            target=name,
            evidence=(f"{len(dead)} of {len(case.history.names)} parameters have only zero gradients",),
            remedy="check the activation after it (a ReLU whose inputs are all negative passes no gradient), and masks",
        )


def _is_learnt(case: Case) -> bool:
    """Return True if the gradients are far smaller than at the beginning."""
    totals = [total for _, total in case.history.totals if math.isfinite(total)]
    return median(totals[-ENOUGH:]) < LEARNT * median(totals[:ENOUGH])


def left_behind(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if a layer is frozen or not in an optimizer, while layers of the same kind train."""
    kinds: dict[str, dict[str, bool]] = defaultdict(dict)
    for one in case.parameters:
        kinds[_kind(one.name)][one.name] = one.held and one.trains
    left = [(name, alike) for alike in kinds.values() for name, trains in alike.items() if not trains]
    left = [(name, alike) for name, alike in left if 2 * sum(alike.values()) > len(alike) > 2 and not _is_begin(alike)]
    if left and case.history.steps >= ENOUGH:
        name, alike = left[0]
        frozen = not next(one.trains for one in case.parameters if one.name == name)
        it, does = ("them", "do") if len(left) > 1 else ("it", "does")
        why = f"{'they' if len(left) > 1 else 'it'} {does} not require grad" if frozen else f"no optimizer holds {it}"
        yield verdict(
            "TH813",
            case.history.first,
            f"'{name}'{_others(left)} {does} not train, because {why}, while {sum(alike.values())} of {len(alike)} "
            "parameters of the same kind train.",
            target=name,
            remedy=f"call requires_grad_() on {it}" if frozen else f"give {it} to the optimizer",
        )


def _is_begin(alike: dict[str, bool]) -> bool:
    """Return True if the first few layers do not train, which programs do on purpose in fine-tuning."""
    trains = list(alike.values())
    count = trains.count(False)
    return count > 1 and not any(trains[:count])


def vanishing(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the gradients of the first layers are far smaller than those of the others."""
    history = case.history
    if history.steps < ENOUGH or not history.recent:
        return
    yield from _vanish(case, history.usual_norms(history.last + 1), STUCK_TOO if is_flat(case) else VANISHED)


def vanished_early(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if gradients vanished at the beginning, while the loss did not fall, although it fell later."""
    if is_flat(case, steps=2 * EARLY) and not any(vanishing(case)):
        yield from _vanish(case, case.history.early_norms, STUCK_TOO, when="at the beginning, ")


def _vanish(case: Case, norms: Sequence[float | None], limit: float, *, when: str = "") -> Iterator[Verdict]:
    places = {one.name: (place, one.size) for place, one in enumerate(case.parameters) if one.dimensions >= 2}
    found = [
        (name, norm / math.sqrt(places[name][1]))
        for name, norm in zip(case.history.names, norms, strict=False)
        if norm and name in places and "emb" not in name.lower()
    ]
    found.sort(key=lambda one: places[one[0]][0])
    few = max(1, min(FEWEST, len(found) // 3))
    splits = [
        (median(size for _, size in found[:place]), median(size for _, size in found[place:]))
        for place in range(few, len(found) - few + 1)
    ]
    third = len(found) // 3
    if third:  # gradients that vanish step by step
        splits.append((median(size for _, size in found[:third]), max(size for _, size in found[-third:])))
    first, last = min(splits, key=lambda one: one[0] / one[1], default=(1.0, 1.0))
    if first < limit * last:
        ratio, later, earlier = min((a[1] / b[1], b[0], a[0]) for a, b in pairwise(found))
        yield verdict(
            "TH810",
            case.history.first,
            f"Gradients vanish along the depth: {when}those of the first layers are {first / last:.1g} times as large "
            f"as those of later layers. They fall most from '{later}' to '{earlier}', by a factor of "
            f"{1 / ratio:.3g}.",
            target=earlier,
            evidence=(
                f"root mean square of '{found[0][0]}': {found[0][1]:.3g}, of '{found[-1][0]}': {found[-1][1]:.3g}",
            ),
            remedy="use residual connections, normalization, another activation or a larger initialization",
        )


def _others(missing: Sequence[object]) -> str:
    count = len(missing) - 1
    return f" and {count} other parameters" if count > 1 else " and another parameter" if count == 1 else ""
