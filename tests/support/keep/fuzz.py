"""Fuzz the readers of plans and of saved states. A mutant must be read, or refused with an error of tenterhook.

A run is divided into chunks. A chunk depends only on its kind, the seed and its number, so it can be replayed.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import tenterhook as th
from tests.support.keep.plan_mutants import PlanMutants
from tests.support.keep.state_mutants import StateMutants

KINDS = ("json", "toml", "state")
#: how many inputs a chunk has
SIZE = 5000


@dataclass
class Tally:
    """Count the outcomes of the inputs of one kind."""

    outcomes: Counter[str] = field(default_factory=Counter)
    #: processor time of the slowest input, its size, and the input
    slowest: tuple[float, int, bytes] = (0.0, 0, b"")
    #: for each place that raised another exception: the first input and the traceback
    found: dict[str, tuple[bytes, str]] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        return self.outcomes.total()

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.slowest = max(self.slowest, other.slowest)
        self.found = other.found | self.found


def chunk(kind: str, seed: int, number: int, size: int = SIZE) -> Tally:
    r = Random(f"{seed}/{kind}/{number}")
    mutants: Any = StateMutants(r) if kind == "state" else PlanMutants(r, kind)
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a state without hooks and a muted hook cause harmless warnings
        for _ in range(size):
            one = mutants.mutant()
            outcome, taken = _try(mutants, one, tally)
            tally.outcomes[outcome] += 1
            if taken > tally.slowest[0]:
                # Take the least of three times, since the machine may have been busy.
                taken = min(taken, _time(mutants, one), _time(mutants, one))
                tally.slowest = max(tally.slowest, (taken, mutants.size(one), mutants.written(one)))
    return tally


def _try(mutants: Any, one: Any, tally: Tally) -> tuple[str, float]:
    """Return the outcome of an input and the wall time of reading it; asking for the processor time is too slow."""
    taken, before = 0.0, time.perf_counter()
    try:
        try:
            made = mutants.read(one)
        finally:
            taken = time.perf_counter() - before
        mutants.use(one, made)
    except th.TenterhookError as error:
        return mutants.word(one, error), taken
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        if place not in tally.found:
            tally.found[place] = (mutants.written(one), traceback.format_exc())
        return "untyped", taken
    return mutants.word(one, None), taken


def _time(mutants: Any, one: Any) -> float:
    before = time.thread_time()
    with suppress(Exception):
        mutants.read(one)
    return time.thread_time() - before
