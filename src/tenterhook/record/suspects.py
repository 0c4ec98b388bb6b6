"""Find the targets that probably caused a problem, based on statistics for the most recent steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tenterhook.record.rows import Batch
from tenterhook.record.verdict import TRAINING

#: maximum number of suspects of one kind
MAX_SUSPECTS = 8
#: number of earlier steps needed to compute a deviation
MIN_PAST = 5
#: a number is suspect if it is at least this many standard deviations above the mean of its past values
MIN_SCORE = 3.0

#: recorded numbers by target, then by name
Numbers = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A target that may have caused the problem, and the reason.

    `kind` is `nonfinite` (the target produced the first non-finite value), `ratio` (the update is large compared with
    the parameter) or `score` (a recorded number is far above its past values).
    """

    kind: str
    target: str
    point: str
    value: float
    why: str


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """Facts about the model and its hooks that the rows do not contain."""

    step: int = -1
    #: for each hook, its point and the order in which its targets last fired
    points: Mapping[str, str] = field(default_factory=dict)
    orders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: norms of the parameters
    weights: Mapping[str, float] = field(default_factory=dict)


def rank_suspects(batches: Sequence[Batch], snapshot: ModelSnapshot) -> list[Suspect]:
    """Return the first target that produced non-finite values, the largest updates, and the largest deviations."""
    if not batches:
        return []
    steps = [{hook: table.values() for hook, table in batch.tables.items()} for batch in batches]
    return [*_producers(steps, snapshot), *_ratios(steps[-1], snapshot), *_scores(steps, snapshot)]


def _at(
    step: Mapping[str, Numbers], snapshot: ModelSnapshot, point: str
) -> Iterator[tuple[int, str, Mapping[str, float]]]:
    """Yield the firing position, the target and the numbers for each site at one point."""
    for hook, numbers in step.items():
        if snapshot.points.get(hook) == point:
            for target, row in numbers.items():
                yield snapshot.orders.get(hook, {}).get(target, 0), target, row


def _counts(step: Mapping[str, Numbers], snapshot: ModelSnapshot, point: str) -> list[tuple[int, str, float, bool]]:
    """Return (position, name, non-finite count, whether there are NaNs) for each target, in firing order."""
    found: dict[str, tuple[int, str, float, bool]] = {}
    for order, target, row in _at(step, snapshot, point):
        if "nonfinite" in row:
            nan = math.isnan(row.get("abs_max", math.nan)) and row["nonfinite"] > 0
            before = found.get(target)
            if before is None or row["nonfinite"] >= before[2]:
                found[target] = (order, target, row["nonfinite"], nan)
    return sorted(found.values())


def _producers(steps: Sequence[Mapping[str, Numbers]], snapshot: ModelSnapshot) -> list[Suspect]:
    now = steps[-1]
    intended = {t for step in steps[:-1] for _, t, count, _ in _counts(step, snapshot, "output") if count}
    forward = [one for one in _counts(now, snapshot, "output") if one[1] not in intended]
    for place, (_, target, count, nan) in enumerate(forward):
        # An infinity that does not reach the next output is intentional, for example in a mask before a softmax.
        later = forward[place + 1 :]
        if count and (nan or not later or later[0][2]):
            return [Suspect("nonfinite", target, "output", count, "the first output that is not finite")]
    return _backward(now, snapshot)


def _backward(now: Mapping[str, Numbers], snapshot: ModelSnapshot) -> list[Suspect]:
    incoming = {target: count for _, target, count, _ in _counts(now, snapshot, "grad_output")}
    for _, target, count, _ in _counts(now, snapshot, "grad_input"):
        if count and not incoming.get(target):
            inner = [t for t, bad in incoming.items() if bad and _inside(t, target)]
            if not inner:
                why = "its backward pass produces a non-finite gradient from a finite gradient"
                return [Suspect("nonfinite", target, "grad_input", count, why)]
    for _, target, count, _ in _counts(now, snapshot, "grad"):
        owner = target.rpartition(".")[0] or "."
        if count and not incoming.get(owner):
            return [Suspect("nonfinite", target, "grad", count, "the first gradient that is not finite")]
    for _, target, count, _ in _counts(now, snapshot, "grad_output"):
        if count:
            return [Suspect("nonfinite", target, "grad_output", count, "caused by a later module or by the loss")]
    for point in ("grad_final", "grad_accumulated", "update"):
        bad = [(count, target) for _, target, count, _ in _counts(now, snapshot, point) if count]
        if bad:
            count, target = max(bad)
            why = "not finite; no recorded output or module gradient shows the cause"
            return [Suspect("nonfinite", target, point, count, why)]
    return []


def _inside(inner: str, outer: str) -> bool:
    return (outer == "." and inner != ".") or inner.startswith(f"{outer}.")


def _ratios(now: Mapping[str, Numbers], snapshot: ModelSnapshot) -> list[Suspect]:
    found = []
    for _, target, row in _at(now, snapshot, "update"):
        weight, norm = snapshot.weights.get(target), row.get("norm")
        if weight and norm is not None and math.isfinite(norm) and math.isfinite(weight):
            ratio = norm / weight
            why = f"the norm of its update is {ratio:.3g} times the norm of the parameter"
            found.append(Suspect("ratio", target, "update", ratio, why))
    return sorted(found, key=lambda s: -s.value)[:MAX_SUSPECTS]


def _scores(steps: Sequence[Mapping[str, Numbers]], snapshot: ModelSnapshot) -> list[Suspect]:
    found: dict[tuple[str, str], Suspect] = {}
    for hook, numbers in steps[-1].items():
        point = "grad_final" if hook == TRAINING else snapshot.points.get(hook, "?")
        for target, row in numbers.items():
            name = "rms" if "rms" in row else "norm"
            past = [v for step in steps[:-1] if (v := step.get(hook, {}).get(target, {}).get(name)) is not None]
            past = [v for v in past if math.isfinite(v)]
            if name not in row or not math.isfinite(row[name]) or len(past) < MIN_PAST:
                continue
            mean = sum(past) / len(past)
            spread = math.sqrt(sum((v - mean) ** 2 for v in past) / len(past)) + 1e-3 * abs(mean) + 1e-12
            score = (row[name] - mean) / spread
            # Two hooks may observe the same signal.
            if score >= MIN_SCORE and (target, point) not in found:
                why = f"{name} is {row[name]:.3g}, but was {mean:.3g} ± {spread:.2g} before"
                found[target, point] = Suspect("score", target, point, score, why)
    return sorted(found.values(), key=lambda s: -s.value)[:MAX_SUSPECTS]
