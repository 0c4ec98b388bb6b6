"""Decide whether a step must be examined, because a number is not finite or far larger than before."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median

#: number of steps that a leap is compared with
PAST = 32
#: number of steps before leaps are looked for
WARM_UP = 10
#: a number leaps if it is so many times larger than usual
LEAP = 8.0
#: ... and so many times larger than the largest of the recent numbers
BEYOND = 3.0


class LeapDetector:
    """An object that notices when one of a few numbers is not finite, or far larger than in the steps before."""

    def __init__(self) -> None:
        self._past: dict[str, deque[float]] = {}

    def look(self, numbers: Mapping[str, float | None]) -> str | None:
        """Return why the step must be examined, or None. The numbers are remembered if they are finite."""
        for name, number in numbers.items():
            if number is not None and not math.isfinite(number):
                return f"{name} is not finite"
        reason = next((why for name, number in numbers.items() if (why := self._leap(name, number))), None)
        for name, number in numbers.items():
            if number is not None:
                self._past.setdefault(name, deque(maxlen=PAST)).append(abs(number))
        return reason

    def _leap(self, name: str, number: float | None) -> str | None:
        past = self._past.get(name, ())
        if number is None or len(past) < WARM_UP or abs(number) <= BEYOND * max(past):
            return None
        usual = median(past)
        return f"{name} is {number:.3g}, and was {usual:.3g} before" if abs(number) > LEAP * usual > 0.0 else None
