"""Read the numbers that two runs have in common, step by step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenterhook.diff.difference import Kind
from tenterhook.diff.order import ORDER, Kinds, Order
from tenterhook.record import Run

#: number of steps that are read together
STEPS_AT_ONCE = 64
#: the rows of both runs. If the model was in evaluation mode in a step, its hooks stand for those of training mode.
#: The calls of a hook are numbered from 1, because only one of the runs may evaluate the model in a step.
_ROWS = """
with phases as (select unnest(?::varchar[]) as eval, unnest(?::varchar[]) as train),
  found as (select * from rows where step between ? and ? and value is not null),
  trained as (select distinct run, step, rank from found join phases on hook = phases.train),
  named as (
    select run, step, rank, target, name, call, coalesce(leaf, 0) as leaf, value,
      case when phases.eval is null or (run, step, rank) in (select (run, step, rank) from trained)
        then hook else phases.train end as hook
    from found left join phases on hook = phases.eval),
  counted as (select * replace (
    dense_rank() over (partition by run, step, rank, hook, target order by call) as call) from named),
  one as (select * exclude run from counted where run = ?),
  other as (select * exclude run from counted where run = ?)
"""
_BOTH = """
select one.step, one.rank, one.hook, one.target, one.name, one.call, one.leaf, one.value, other.value
from one join other on one.step = other.step and one.hook = other.hook and one.target = other.target
  and one.name = other.name and one.call = other.call and one.leaf = other.leaf and """
#: what a hook recorded in only one run, in steps in which it recorded something in both
_LACKING = """,
  of_one as (select * exclude value from one), of_other as (select * exclude value from other),
  shared as (select step, rank, hook from one intersect select step, rank, hook from other)
select distinct step, rank, hook, target, name from (
  (select * from of_one except select * from of_other) union (select * from of_other except select * from of_one))
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


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of one call in both runs, with the place of the call in the order of execution, if it is known."""

    call: int
    one: float
    other: float
    order: float | None

    @property
    def equal(self) -> bool:
        return self.one == self.other


@dataclass(slots=True)
class Pair:
    """The numbers of one target and kind in one step and on one rank, of both runs."""

    step: int
    rank: int
    kind: Kind
    target: str
    #: its place in a step
    place: tuple[float, ...] = ()
    #: by hook and name
    numbers: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    #: for each call, numbered from 1
    digests: list[Digests] = field(default_factory=list)
    #: True if only one run has some of the numbers
    lacking: bool = False

    @property
    def equal(self) -> bool:
        """Return True if all digests are equal, or if there are none and all numbers are equal."""
        if self.lacking:
            return False
        if self.digests:
            return self.first_call is None
        return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in self.numbers.values())

    @property
    def first_call(self) -> Digests | None:
        """Return the digests of the first call that differs, or None."""
        differing = [one for one in self.digests if not one.equal]
        return min(differing, key=lambda one: (one.order or 0.0, one.call), default=None)

    @property
    def calls(self) -> int:
        """Return the number of calls with a digest."""
        return len({one.call for one in self.digests})

    def order(self, *, exact: bool) -> float | None:
        """Return the place of the last call, or of the first one whose bits differ, or None if it is not known."""
        known = [one.order for one in self.digests if one.order is not None]
        first = self.first_call if exact else None
        return first.order if first is not None else max(known, default=None)

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
        self._both = _BOTH + (_FIRST_RANKS if self._shared else _SAME_RANK)
        ends = self._run.fetch("select run, min(step), max(step), count(distinct rank) from rows group by run")
        #: True if both runs should have recorded the same
        self._same_plan = first.plan == Run(other).plan
        self.first = max((row[1] for row in ends), default=0)
        self.last = min((row[2] for row in ends), default=-1) if len(ends) == 2 else -1
        self.all_ranks = min((row[3] for row in ends), default=0) >= max(self.ranks)

    def steps(self, *, exact: bool = False) -> Iterator[list[Pair]]:
        """Yield the pairs of each step, in the order in which training computed the numbers.

        Args:
            exact: If True, a pair has the place of the first call whose bits differ, and pairs of which only one run
                has the numbers, such as a gradient, are yielded too.
        """
        query = "select distinct step from rows where step between ? and ? order by step"
        # Steps may be far apart, so those that were recorded are counted.
        recorded = [step for (step,) in self._run.fetch(query, self.first, self.last)]
        for start in range(0, len(recorded), STEPS_AT_ONCE):
            some = recorded[start : start + STEPS_AT_ONCE]
            given = [*self._kinds.phases, some[0], some[-1], *self._paths]
            pairs = self._recorded_by_both(given)
            lacking = self._run.fetch(_ROWS + _LACKING, *given) if exact and self._same_plan else []
            for step, rank, hook, target, name in lacking:
                kind = self._kinds.kind_of(hook, target, name)
                # Weights are read only where there is a gradient, so the gradient is what is lacking.
                if kind is not None and kind != "weights":
                    _pair(pairs, step, rank, kind, target).lacking = True
            for step in sorted(pairs):
                yield self._in_order(pairs[step].values(), exact=exact)

    def _recorded_by_both(self, given: list[Any]) -> Found:
        """Return the pairs of some steps."""
        found: Found = {}
        orders: dict[tuple[int, int, str, str, int, int], float] = {}
        digests = []
        for step, rank, hook, target, name, call, leaf, a, b in self._run.fetch(_ROWS + self._both, *given):
            kind = self._kinds.kind_of(hook, target, name)
            if kind is None or (self._shared and kind not in SHARED):
                continue
            pair = _pair(found, step, rank, kind, target)
            if not self._kinds.is_digest(hook):
                pair.numbers[hook, name] = (a, b)
            elif name == ORDER:
                orders[step, rank, hook, target, call, leaf] = a
            else:
                digests.append((pair, (step, rank, hook, target, call, leaf), a, b))
        for pair, place, a, b in digests:
            pair.digests.append(Digests(place[4], a, b, orders.get(place)))
        return found

    def _in_order(self, pairs: Iterable[Pair], *, exact: bool) -> list[Pair]:
        """Return the pairs of a step in the order in which training computed the numbers."""
        pairs = list(pairs)
        orders = [pair.order(exact=exact) for pair in pairs]
        # The order of the layers is used if the places of some calls are not known.
        known = all(
            order is not None or pair.lacking or pair.kind != "forward"
            for pair, order in zip(pairs, orders, strict=True)
        )
        for pair, order in zip(pairs, orders, strict=True):
            pair.place = self._order.place(pair.kind, pair.target)
            if known and pair.kind == "forward" and order is not None:
                pair.place = (pair.place[0], order)
        return sorted(pairs, key=lambda pair: (pair.place, pair.target, pair.rank))


#: the pairs of some steps, by step, and by kind, target and rank
Found = dict[int, dict[tuple[Kind, str, int], Pair]]


def _pair(found: Found, step: int, rank: int, kind: Kind, target: str) -> Pair:
    return found.setdefault(step, {}).setdefault((kind, target, rank), Pair(step, rank, kind, target))
