"""Decide which differences rounding explains, for runs that cannot be equal bit by bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from tenterhook.diff.difference import Kind
from tenterhook.diff.pairs import Pair, Pairs

#: a difference of so many units in the last place is rounding
UNITS = 64
#: precision of dtypes whose numbers have few bits
_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: rounding grows from number to number by at most this factor, and by the second one over what a perturbed run shows
GROWTH, MARGIN = 64.0, 16.0
#: optimizers such as Adam divide each element by its own size, so that the rounding of small elements grows more
UPDATE_GROWTH = 512.0
#: the kinds that an optimizer computes
STEPPED: tuple[Kind, ...] = ("weights", "update")
#: a tensor whose norm is smaller than this part of the typical one is compared by the typical norm
SMALL = 0.1
#: a gradient this much smaller than the typical one is rounding; optimizers such as Adam turn it into a full update
NOTHING = 1e-4


class Tolerance:
    """Decides for each pair, in order, whether rounding explains its difference.

    Args:
        dtype: The dtype of the parameters with the fewest bits.
        given: The largest relative difference that is accepted, or None to estimate it.
        perturbed: Pairs of a run with itself, perturbed by one unit in the last place.
    """

    def __init__(self, dtype: str, given: float | None, perturbed: Sequence[Pairs]) -> None:
        self._given = given
        #: a relative difference up to this one is always rounding
        self.least = UNITS * _EPS.get(dtype, 2.0**-23)
        #: the largest difference that was explained so far
        self.largest = 0.0
        #: parameters whose gradient was only rounding, so that their weights drift apart
        self._rounding: set[str] = set()
        #: for perturbed runs: the difference by step, kind and target, and the largest one of all steps so far
        self._shown: dict[tuple[int, Kind, str], float] = {}
        self._most: dict[int, float] = {}
        for pairs in perturbed:
            most = 0.0
            for step in pairs.steps():
                typical = typical_sizes(step)
                for pair in step:
                    found = pair.relative(SMALL * typical.get(pair.kind, 0.0))
                    key = (pair.step, pair.kind, pair.target)
                    self._shown[key] = max(found, self._shown.get(key, 0.0))
                    most = max(most, found if math.isfinite(found) else 0.0)
                    self._most[pair.step] = max(most, self._most.get(pair.step, 0.0))

    def unexplained(self, step: list[Pair]) -> list[tuple[Pair, float]]:
        """Return the pairs of a step whose difference is not rounding, with the difference, in order."""
        typical = typical_sizes(step)
        self._rounding |= {
            pair.target
            for pair in step
            if pair.kind == "backward" and pair.size < NOTHING * typical.get("backward", 0.0)
        }
        found = []
        largest = self.largest
        for pair in step:
            if pair.kind in ("weights", "update") and pair.target in self._rounding:
                continue
            difference = pair.relative(SMALL * typical.get(pair.kind, 0.0))
            if difference > self._allowed(pair, largest):
                found.append((pair, difference))
            elif not found and pair.kind not in STEPPED:
                largest = max(largest, difference)
        self.largest = largest
        return found

    def _allowed(self, pair: Pair, before: float) -> float:
        if self._given is not None:
            return self._given
        if self._shown:
            shown = self._shown.get((pair.step, pair.kind, pair.target), 0.0)
            return max(self.least, MARGIN * shown, self._most.get(pair.step, 0.0))
        return max(self.least, (UPDATE_GROWTH if pair.kind in STEPPED else GROWTH) * before)


def typical_sizes(step: list[Pair]) -> dict[Kind, float]:
    """Return the median norm of the tensors of each kind."""
    sizes: dict[Kind, list[float]] = {}
    for pair in step:
        if pair.size:
            sizes.setdefault(pair.kind, []).append(pair.size)
    return {kind: median(some) for kind, some in sizes.items()}
