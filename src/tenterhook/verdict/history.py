"""Keep the cheap numbers of every step: gradient norms, how far the weights moved, learning rates and the loss."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median

from tenterhook.verdict.unusual import Excursions, ParameterLeaps

#: number of recent steps that are kept in detail
RECENT = 128
#: number of steps of which the totals are kept
LONG = 100_000
#: gradients are clipped in every step if the norms of so many steps are equal, up to such a difference
CONSTANT, NEAR = 20, 1e-3
#: number of steps that are the beginning of a run
EARLY = 32
#: a gradient leaps if it is so many times larger, compared with its usual size, than the median of all gradients
APART = 100.0
#: how much a skipped pass counts that may be a part of an accumulated gradient
UNSURE = 0.3
#: whether the program accumulates gradients is known after so many steps
KNOWN = 10


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a parameter group that decide how large its updates are."""

    rate: float
    decay: float = 0.0


@dataclass(slots=True)
class StepNumbers:
    """The numbers of one optimizer step. The lists are in the order of `History.names`."""

    step: int
    #: the norm of each parameter's gradient, and None without a gradient
    norms: list[float | None]
    groups: tuple[GroupSettings, ...]
    loss: float | None = None
    #: how far a few elements of each parameter moved since the step before
    moved: list[float | None] = field(default_factory=list)
    #: the norms of the parameters before the step, if they were measured
    weights: list[float | None] | None = None
    #: norm of all gradients together
    total: float = field(init=False)

    def __post_init__(self) -> None:
        self.total = math.sqrt(sum(norm * norm for norm in self.norms if norm is not None))

    @property
    def rate(self) -> float:
        """Return the largest learning rate."""
        return max((group.rate for group in self.groups), default=0.0)


@dataclass(slots=True)
class Arrivals:
    """The steps in which gradients of one kind arrived at a parameter."""

    count: int = 0
    #: the last step in which one arrived, and -1 if none did
    last: int = -1
    #: the longest time between two of them, in steps
    longest_gap: int = 0

    def add(self, step: int) -> None:
        if self.count:
            self.longest_gap = max(self.longest_gap, step - self.last)
        self.count += 1
        self.last = step


class Series:
    """One number for each step, or for some of the steps. The oldest ones are dropped when there are too many."""

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._numbers: list[float] = []

    def append(self, step: int, number: float) -> None:
        """Add the number of a step that is not before the last one."""
        self._steps.append(step)
        self._numbers.append(number)
        if len(self._steps) >= 2 * LONG:  # rarely, because removing from the front of a list moves the rest
            del self._steps[:-LONG], self._numbers[:-LONG]

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(self._steps, self._numbers, strict=True)

    def get(self, step: int) -> float | None:
        """Return the number of a step, the last one if it has several."""
        end = bisect_left(self._steps, step + 1)
        return self._numbers[end - 1] if end and self._steps[end - 1] == step else None

    def between(self, first: int, end: int) -> list[float]:
        """Return the numbers from a step on, up to the one before `end`."""
        return self._numbers[bisect_left(self._steps, first) : bisect_left(self._steps, end)]

    def before(self, step: int, count: int) -> list[float]:
        """Return the last finite numbers before a step, up to `count`, in their order."""
        past = range(bisect_left(self._steps, step) - 1, -1, -1)
        finite = (number for place in past if math.isfinite(number := self._numbers[place]))
        return list(islice(finite, count))[::-1]

    def latest(self, count: int) -> list[float]:
        """Return the last numbers, up to `count`, in their order."""
        return self._numbers[-count:]

    @property
    def first(self) -> int:
        """Return the first step, and 0 if there is none."""
        return self._steps[0] if self._steps else 0

    @property
    def last(self) -> int:
        """Return the last step, and 0 if there is none."""
        return self._steps[-1] if self._steps else 0


class History:
    """The numbers of the steps of a run.

    Args:
        names: The names of the parameters.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names: list[str] = []
        self.recent: deque[StepNumbers] = deque(maxlen=RECENT)
        #: the loss of each step, and the norm of all gradients
        self.losses = Series()
        self.totals = Series()
        #: the sum of the norms of all weights, for the steps in which they were measured
        self.lengths = Series()
        #: changes of the settings: the step, and the settings from then on
        self.settings: deque[tuple[int, tuple[GroupSettings, ...]]] = deque(maxlen=LONG)
        #: for each parameter, the steps with a gradient, and with a gradient other than zero
        self.arrived: list[Arrivals] = []
        self.nonzero: list[Arrivals] = []
        #: how often each step was skipped, because a gradient was too large for float16
        self.skips: dict[int, float] = {}
        self.skipped_passes: dict[int, int] = {}
        #: the number of passes of the recent steps, and of this one so far
        self._passes: deque[int] = deque(maxlen=RECENT)
        self._open_passes = 0
        #: the steps before which weights moved far more than usual
        self.movements = ParameterLeaps()
        #: the steps in which the gradients of parameters were far larger than usual
        self.gradients = ParameterLeaps(apart=APART)
        #: the steps whose loss was far above that of the steps before
        self.excursions = Excursions()
        #: the usual norm of each parameter's gradient at the beginning
        self.early_norms: list[float | None] = []
        self.steps = 0
        self.extend(names)

    def extend(self, names: Iterable[str]) -> None:
        """Add parameters that the optimizer received later."""
        for name in names:
            self.names.append(name)
            self.arrived.append(Arrivals())
            self.nonzero.append(Arrivals())

    def add(self, numbers: StepNumbers) -> None:
        """Add the numbers of a step."""
        self.recent.append(numbers)
        self._passes.append(self._open_passes + 1)
        self._open_passes = 0
        self.movements.add(numbers.step, self.names, numbers.moved)
        self.gradients.add(numbers.step, self.names, numbers.norms)
        self.steps += 1
        if self.steps == EARLY:
            self.early_norms = self.usual_norms(numbers.step + 1, EARLY // 2)
        if numbers.loss is not None:
            self.excursions.add(numbers.step, numbers.loss)
            self.losses.append(numbers.step, numbers.loss)
        self.totals.append(numbers.step, numbers.total)
        if numbers.weights is not None:
            self.weigh(numbers.step, numbers.weights)
        if not self.settings or self.settings[-1][1] != numbers.groups:
            self.settings.append((numbers.step, numbers.groups))
        for place, norm in enumerate(numbers.norms):
            if norm is not None:
                self.arrived[place].add(numbers.step)
                if norm != 0.0:
                    self.nonzero[place].add(numbers.step)

    def weigh(self, step: int, weights: Iterable[float | None]) -> None:
        """Add the norms of the weights, as they were before a step."""
        self.lengths.append(step, sum(one for one in weights if one is not None))

    def is_constant(self) -> bool:
        """Return True if the norm of all gradients was the same in each of the recent steps, as with clipping."""
        if self.steps < CONSTANT or self.steps % CONSTANT:
            return False
        recent = self.totals.latest(CONSTANT)
        return min(recent) > 0.0 and max(recent) <= (1.0 + NEAR) * min(recent)

    def end_pass(self) -> None:
        """Count a pass that no optimizer step followed."""
        self._open_passes += 1

    def skip(self, step: int, *, sure: bool) -> None:
        """Count a step that the program skipped. A pass that may be a part of an accumulated gradient counts less."""
        single = len(self._passes) >= KNOWN and median(self._passes) == 1
        self.skips[step] = self.skips.get(step, 0.0) + (1.0 if sure or single else UNSURE)
        self.skipped_passes[step] = self.skipped_passes.get(step, 0) + 1

    @property
    def first(self) -> int:
        """Return the first step."""
        return self.totals.first

    @property
    def last(self) -> int:
        """Return the last step."""
        return self.totals.last

    def rate_at(self, step: int) -> float:
        """Return the largest learning rate of a step."""
        place = bisect_right(self.settings, step, key=lambda one: one[0])
        return max((group.rate for group in self.settings[place - 1][1]), default=0.0) if place else 0.0

    def before(self, step: int, count: int = RECENT) -> list[StepNumbers]:
        """Return the numbers of up to `count` recent steps before a step."""
        return [one for one in self.recent if one.step < step][-count:]

    def usual_norms(self, step: int, count: int = 32) -> list[float | None]:
        """Return the median norm of each parameter's gradient in the steps before a step. None if there was none."""
        return self._usual([one.norms for one in self.before(step, count)])

    def _usual(self, past: Sequence[Sequence[float | None]]) -> list[float | None]:
        return [_median(one[place] for one in past if place < len(one)) for place in range(len(self.names))]


def _median(norms: Iterator[float | None]) -> float | None:
    found = [norm for norm in norms if norm is not None and math.isfinite(norm)]
    return median(found) if found else None
