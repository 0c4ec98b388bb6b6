"""Keep the cheap numbers of every step: gradient norms, learning rates and the loss."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

#: number of recent steps that are kept in detail
RECENT = 128
#: number of steps of which the totals are kept
LONG = 100_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a parameter group that decide how large its updates are."""

    rate: float
    decay: float = 0.0


@dataclass(slots=True)
class StepNumbers:
    """The numbers of one optimizer step.

    `norms` has the norm of each parameter's gradient, in the order of `History.names`, and None without a gradient.
    """

    step: int
    norms: list[float | None]
    groups: tuple[GroupSettings, ...]
    loss: float | None = None
    #: the norms of the parameters before the step, if they were measured
    weights: list[float] | None = None
    #: norm of all gradients together
    total: float = field(init=False)

    def __post_init__(self) -> None:
        self.total = math.sqrt(sum(norm * norm for norm in self.norms if norm is not None))


class History:
    """The numbers of the steps of a run.

    Args:
        names: The names of the parameters.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.recent: deque[StepNumbers] = deque(maxlen=RECENT)
        #: for each step: its number, the loss, and the norm of all gradients
        self.losses: deque[tuple[int, float]] = deque(maxlen=LONG)
        self.totals: deque[tuple[int, float]] = deque(maxlen=LONG)
        #: changes of the settings: the step, and the settings from then on
        self.settings: deque[tuple[int, tuple[GroupSettings, ...]]] = deque(maxlen=LONG)
        #: for each parameter, the number of steps with a gradient, and with a gradient other than zero
        self.arrived = [0] * len(self.names)
        self.nonzero = [0] * len(self.names)
        self.steps = 0

    def add(self, numbers: StepNumbers) -> None:
        """Add the numbers of a step."""
        self.recent.append(numbers)
        self.steps += 1
        if numbers.loss is not None:
            self.losses.append((numbers.step, numbers.loss))
        self.totals.append((numbers.step, numbers.total))
        if not self.settings or self.settings[-1][1] != numbers.groups:
            self.settings.append((numbers.step, numbers.groups))
        for place, norm in enumerate(numbers.norms):
            if norm is not None:
                self.arrived[place] += 1
                self.nonzero[place] += norm != 0.0

    def before(self, step: int, count: int = RECENT) -> list[StepNumbers]:
        """Return the numbers of up to `count` recent steps before a step."""
        return [one for one in self.recent if one.step < step][-count:]

    def usual_norms(self, step: int, count: int = 32) -> list[float | None]:
        """Return the median norm of each parameter's gradient in the steps before a step. None if there was none."""
        past = [one.norms for one in self.before(step, count)]
        return [_usual(norms[place] for norms in past) for place in range(len(self.names))]


def _usual(norms: Iterator[float | None]) -> float | None:
    found = [norm for norm in norms if norm is not None and math.isfinite(norm)]
    return median(found) if found else None
