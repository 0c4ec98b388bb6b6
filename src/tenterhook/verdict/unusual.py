"""Notice numbers that are unusual for this run: of single parameters, or a loss that leaps for one step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

#: a number of a parameter leaps if it is so many times larger than usual, which is known after so many steps
FAR, SETTLED = 6.0, 10
#: ... and compared with the largest number so far, divided by this
ONCE = 10.0
#: number of unusual steps that are kept
MOST = 256
#: number of losses that a loss is compared with
PAST = 32
#: a loss leaps if it is so many times its usual change above the usual loss
HIGH = 10.0
#: ... and so many times higher than any loss of this run was before
HIGHER = 3.0


@dataclass(frozen=True, slots=True)
class ParameterLeap:
    """A step in which a number of a parameter leapt. `factors` divides each parameter's number by its usual one."""

    step: int
    factors: dict[str, float]

    @property
    def usual(self) -> float:
        """Return the median of the factors."""
        return median(self.factors.values())


class ParameterLeaps:
    """The steps in which a number of a parameter leapt: how far the parameter moved, or the norm of its gradient.

    Args:
        apart: A number also leaps if its factor is so many times the median of all factors. A program that clips the
            norm of all gradients makes the other ones smaller instead of this one larger.
    """

    def __init__(self, *, apart: float = math.inf) -> None:
        self._apart = apart
        self.found: deque[ParameterLeap] = deque(maxlen=MOST)
        #: number of steps with numbers, and True if one of the numbers was not zero
        self.measured = 0
        self.nonzero = False
        #: for each parameter, its usual number, and in how many steps it was measured
        self._usual: list[float] = []
        self._counts: list[int] = []
        #: the largest number of each parameter so far, without the leaps
        self._largest: list[float] = []

    def add(self, step: int, names: Sequence[str], numbers: Sequence[float | None]) -> None:
        """Look at the numbers of a step."""
        missing = len(numbers) - len(self._usual)
        self._usual += [0.0] * missing
        self._counts += [0] * missing
        self._largest += [0.0] * missing
        factors, far = {}, False
        self.measured += any(number is not None for number in numbers)
        self.nonzero = self.nonzero or any(numbers)
        for place, number in enumerate(numbers):
            if number is None:
                continue
            usual, count = self._usual[place], self._counts[place]
            if count >= SETTLED and usual > 0.0:
                # A layer that was not needed for a while, or has learnt everything, moves again as it did before.
                factor = number / max(usual, self._largest[place] / ONCE)
                factors[names[place]] = factor
                far = far or factor > FAR
                number = min(number, 4.0 * usual)  # a single large number does not become usual
            if math.isfinite(number):
                self._largest[place] = max(self._largest[place], number)
                self._usual[place] = usual + (number - usual) / min(count + 1, SETTLED)
                self._counts[place] = count + 1
        if far or (
            self._apart < math.inf and factors and max(factors.values()) > self._apart * median(factors.values())
        ):
            self.found.append(ParameterLeap(step, factors))


@dataclass(frozen=True, slots=True)
class Excursion:
    """A step whose loss was far above that of the steps before. `usual` is the median of those."""

    step: int
    loss: float
    usual: float


class Excursions:
    """The steps whose loss was far above that of the steps before, compared with how the loss of this run varies."""

    def __init__(self) -> None:
        self.found: deque[Excursion] = deque(maxlen=MOST)
        self._past: deque[float] = deque(maxlen=PAST)
        self._first: list[float] = []
        self._highest = 0.0
        self._last = 0.0

    def add(self, step: int, loss: float) -> None:
        """Look at the loss of a step."""
        if not math.isfinite(loss):
            return
        if len(self._past) >= SETTLED:
            usual = median(self._past)
            change = median(abs(one - other) for one, other in pairwise(self._past))
            height = (loss - usual) / change if change > 0.0 else 0.0
            untrained = loss > max(self._first)  # a batch that is only hard has a lower loss than that
            if untrained and height > max(HIGH, HIGHER * self._highest) and self._last < HIGH:
                self.found.append(Excursion(step, loss, usual))
            self._highest = max(self._highest, height)
            self._last = height
        else:
            self._first.append(loss)
        self._past.append(loss)
