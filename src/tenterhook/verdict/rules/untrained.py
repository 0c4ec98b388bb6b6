"""Find layers that do not train: no gradient, a gradient of zero, or one that is far too small."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tenterhook.verdict.case import Case
from tenterhook.verdict.verdicts import Verdict

#: number of steps before a layer is judged
ENOUGH = 10
#: gradients vanish if those of the first layers are so many times smaller than those of the last layers
VANISHED = 1e-4
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")


def never_reached(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if parameters of the optimizer never received a gradient, while others did."""
    history = case.history
    missing = [n for n, count in zip(history.names, history.arrived, strict=True) if count == 0]
    trains = {one.name for one in case.parameters if one.trains}
    missing = [name for name in missing if name in trains]
    if history.steps >= ENOUGH and missing and any(history.arrived):
        yield Verdict(
            "TH812",
            history.totals[0][0],
            missing[0],
            f"'{missing[0]}'{_others(missing)} received no gradient in {history.steps} steps: the loss does not depend "
            "on it, or the code detaches it.",
            (f"{len(missing)} of {len(history.names)} parameters in the optimizer have no gradient",),
            "check that the forward pass uses it, and look for detach() and torch.no_grad() after it",
        )


def dead_layers(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the gradient of a parameter was exactly zero in every step."""
    history = case.history
    dead = [
        name
        for name, arrived, nonzero in zip(history.names, history.arrived, history.nonzero, strict=True)
        if arrived >= ENOUGH and nonzero == 0
    ]
    if dead and any(history.nonzero):
        yield Verdict(
            "TH811",
            history.totals[0][0],
            dead[0],
            f"'{dead[0]}'{_others(dead)} had a gradient of exactly zero in all {history.steps} steps: the layer is "
            "dead, or nothing that depends on it reaches the loss.",
            (f"{len(dead)} of {len(history.names)} parameters have only zero gradients",),
            "check the activation after it (a ReLU whose inputs are all negative passes no gradient), and its mask",
        )


def left_behind(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if a layer is frozen or not in an optimizer, while layers of the same kind train."""
    kinds: dict[str, dict[str, bool]] = defaultdict(dict)
    for one in case.parameters:
        kinds[_NUMBER.sub("*", one.name, count=1)][one.name] = one.held and one.trains
    left = [(name, alike) for alike in kinds.values() for name, trains in alike.items() if not trains]
    left = [(name, alike) for name, alike in left if 2 * sum(alike.values()) > len(alike) > 2]
    if left and case.history.steps >= ENOUGH:
        name, alike = left[0]
        frozen = not next(one.trains for one in case.parameters if one.name == name)
        why = "it does not require grad" if frozen else "no optimizer holds it"
        yield Verdict(
            "TH813",
            case.history.totals[0][0],
            name,
            f"'{name}'{_others([n for n, _ in left])} does not train, because {why}, while "
            f"{sum(alike.values())} of {len(alike)} parameters of the same kind train.",
            (),
            "call requires_grad_() on it" if frozen else "give it to the optimizer",
        )


def vanishing(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if the gradients of the first layers are far smaller than those of the last layers."""
    history = case.history
    if history.steps < ENOUGH or not history.recent:
        return
    sizes = {one.name: one.size for one in case.parameters if one.dimensions >= 2}
    usual = history.usual_norms(history.recent[-1].step + 1)
    found = [
        (name, norm / math.sqrt(sizes[name]))
        for name, norm in zip(history.names, usual, strict=True)
        if norm and name in sizes and "emb" not in name.lower()
    ]
    if len(found) < 3:
        return
    third = max(1, len(found) // 3)
    first = max(size for _, size in found[:third])
    last = max(size for _, size in found[-third:])
    if 0.0 < first < VANISHED * last:
        drops = [(a[1] / b[1], b[0], a[0]) for a, b in pairwise(found) if b[1] > 0.0]
        ratio, later, earlier = min(drops)
        yield Verdict(
            "TH810",
            history.totals[0][0],
            earlier,
            f"Gradients vanish: those of the first layers are {first / last:.1g} times as large as those of the last "
            f"layers. The largest fall is from '{later}' to '{earlier}', by a factor of {1 / ratio:.3g}.",
            (f"root mean square of '{found[0][0]}': {found[0][1]:.3g}, of '{found[-1][0]}': {found[-1][1]:.3g}",),
            "use residual connections, normalization, another activation or a larger initialization",
        )


def _others(names: list[str]) -> str:
    return f" and {len(names) - 1} other parameters" if len(names) > 2 else " and another" if len(names) == 2 else ""
