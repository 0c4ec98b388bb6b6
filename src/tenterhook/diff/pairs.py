"""Read the numbers that two runs have in common, step by step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tenterhook.diff.difference import Kind
from tenterhook.diff.order import Kinds, Order
from tenterhook.record import Run

#: number of steps that are read together
STEPS_AT_ONCE = 64
_QUERY = """
with one as (select * from rows where run = ? and step between ? and ? and value is not null),
  other as (select * from rows where run = ? and step between ? and ? and value is not null)
select one.step, one.rank, one.hook, one.target, one.name, one.value, other.value
from one join other on one.step = other.step and one.hook = other.hook and one.target = other.target
  and one.name = other.name and coalesce(one.call, 0) = coalesce(other.call, 0)
  and coalesce(one.leaf, 0) = coalesce(other.leaf, 0) and """
#: what a hook recorded in only one run, in steps in which it recorded something in both
_LACKING = """
with one as (select distinct step, rank, hook, target, name from rows
    where run = ? and step between ? and ? and value is not null),
  other as (select distinct step, rank, hook, target, name from rows
    where run = ? and step between ? and ? and value is not null),
  shared as (select step, rank, hook from one intersect select step, rank, hook from other)
select * from ((select * from one except select * from other) union (select * from other except select * from one))
where (step, rank, hook) in (select (step, rank, hook) from shared)
"""
_SAME_RANK = "one.rank = other.rank"
_FIRST_RANKS = "one.rank = (select min(rank) from one) and other.rank = (select min(rank) from other)"
#: numbers that do not depend on how the data is divided between ranks
SHARED: tuple[Kind, ...] = ("weights", "backward", "rate", "update")
#: numbers of a tensor, and the number by whose size the difference is measured
_SCALES = {
    "norm": "norm",
    "rms": "rms",
    "abs_max": "abs_max",
    "mean": "rms",
    "weight": "weight",
    "loss": "loss",
    "rate": "rate",
}


@dataclass(slots=True)
class Pair:
    """The numbers of one target and kind in one step and on one rank, of both runs."""

    step: int
    rank: int
    kind: Kind
    target: str
    place: tuple[int, int, int, str]
    #: by hook and name
    numbers: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    digests: list[tuple[float, float]] = field(default_factory=list)
    #: True if only one run has some of the numbers
    lacking: bool = False

    @property
    def equal(self) -> bool:
        """Return True if all digests are equal, or if there are none and all numbers are equal."""
        if self.lacking:
            return False
        compared = self.digests or list(self.numbers.values())
        return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in compared)

    @property
    def size(self) -> float:
        """Return the larger norm."""
        norms = [max(abs(a), abs(b)) for (_, name), (a, b) in self.numbers.items() if name == "norm"]
        return max((norm for norm in norms if math.isfinite(norm)), default=0.0)

    def relative(self, least: float = 0.0) -> float:
        """Return the largest relative difference of the numbers.

        Args:
            least: A difference is compared with a norm of at least this size.
        """
        largest = 0.0
        for (hook, name), (a, b) in self.numbers.items():
            by = _SCALES.get(name)
            if by is None or a == b or (math.isnan(a) and math.isnan(b)):
                continue
            if not (math.isfinite(a) and math.isfinite(b)):
                return math.inf
            scale = max(map(abs, self.numbers.get((hook, by), (a, b))))
            norm = max(map(abs, self.numbers.get((hook, "norm"), (scale, scale))))
            if norm < least:  # numbers of one tensor shrink together
                scale *= least / norm if norm > 0 else math.inf
            largest = max(largest, abs(a - b) / scale if scale > 0 else math.inf)
        return largest


class Pairs:
    """The numbers that two runs have in common.

    If the runs have different numbers of ranks, each rank had another part of the data. Only the numbers that are equal
    on all ranks are compared then.

    Args:
        one: A run folder.
        other: Another run folder, with a path that is not equal to the first one.

    Attributes:
        setups: The setup of each run, or None if it is not known.
        first: The first step that both runs recorded.
        last: The last step that both runs recorded.
        all_ranks: True if every rank of both runs recorded its own numbers.
    """

    def __init__(self, one: Path, other: Path) -> None:
        first = Run(one)
        self._paths = (str(one), str(other))
        self._run = Run(one, other)
        self._kinds = Kinds(first.plan)
        self._order = Order(first.layers)
        self.setups = first.setup, Run(other).setup
        self.ranks = tuple(setup.ranks if setup else 1 for setup in self.setups)
        self._shared = self.ranks[0] != self.ranks[1]
        self._query = _QUERY + (_FIRST_RANKS if self._shared else _SAME_RANK)
        ends = self._run.fetch("select run, min(step), max(step), count(distinct rank) from rows group by run")
        self.first = max((row[1] for row in ends), default=0)
        self.last = min((row[2] for row in ends), default=-1) if len(ends) == 2 else -1
        self.all_ranks = min((row[3] for row in ends), default=0) >= max(self.ranks)

    def steps(self, *, lacking: bool = False) -> Iterator[list[Pair]]:
        """Yield the pairs of each step, in the order in which training computed the numbers.

        Args:
            lacking: If True, also yield pairs of which only one run has the numbers, such as a gradient.
        """
        one, other = self._paths
        for first in range(self.first, self.last + 1, STEPS_AT_ONCE):
            last = min(first + STEPS_AT_ONCE - 1, self.last)
            found: dict[int, dict[tuple[Kind, str, int], Pair]] = {}
            for step, rank, hook, target, name, a, b in self._run.fetch(
                self._query, one, first, last, other, first, last
            ):
                kind = self._kinds.kind_of(hook, target, name)
                if kind is None or (self._shared and kind not in SHARED):
                    continue
                key = (kind, target, rank)
                pairs = found.setdefault(step, {})
                pair = pairs.get(key) or pairs.setdefault(
                    key, Pair(step, rank, kind, target, self._order.place(kind, target))
                )
                if self._kinds.is_digest(hook):
                    pair.digests.append((a, b))
                else:
                    pair.numbers[hook, name] = (a, b)
            for step, rank, hook, target, name in (
                self._run.fetch(_LACKING, one, first, last, other, first, last) if lacking else ()
            ):
                kind = self._kinds.kind_of(hook, target, name)
                # Weights are read only where there is a gradient, so the gradient is what is lacking.
                if kind is not None and kind != "weights":
                    pair = found.setdefault(step, {}).setdefault(
                        (kind, target, rank), Pair(step, rank, kind, target, self._order.place(kind, target))
                    )
                    pair.lacking = True
            for step in sorted(found):
                yield sorted(found[step].values(), key=lambda pair: (pair.place, pair.rank))
