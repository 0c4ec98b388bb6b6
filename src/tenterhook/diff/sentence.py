"""Say in one or two sentences where two runs differ."""

from __future__ import annotations

import math

from tenterhook.diff.difference import Difference, Kind
from tenterhook.diff.pairs import Pair, Pairs

_WHAT: dict[Kind, str] = {
    "data": "the input of the model",
    "weights": "the parameter {target} before the step",
    "forward": "the output of {target}",
    "loss": "the loss",
    "backward": "the gradient of {target}",
    "rate": "the learning rate",
    "update": "the update of {target}",
}
#: what the kinds before it say
_BEFORE: dict[Kind, str] = {
    "data": "Check the data, its order and the seed of its random numbers",
    "weights": "The weights were changed outside the optimizer's step, or they were initialized differently",
    "forward": "Everything that was recorded before it in this step is equal: the input of the model, the weights and "
    "the outputs of earlier layers",
    "loss": "The outputs are equal, so the labels or the loss function differ",
    "backward": "The outputs, the loss and the gradients of later layers are equal",
    "rate": "The gradients are equal",
    "update": "The gradients are equal, so the optimizer, its settings or its state differ",
}


def describe(
    step: list[Pair], found: list[tuple[Pair, float]], first: int, *, exact: bool, rounding: float
) -> Difference:
    """Return the first difference.

    Args:
        step: All pairs of the step.
        found: The pairs that differ, in order, with their relative differences.
        first: The first step that was compared.
        exact: True if bits were compared.
        rounding: The largest relative difference before this step.
    """
    pair, relative = found[0]
    others = sum(other.kind == pair.kind for other, _ in found) - 1
    target = None if pair.kind in ("data", "loss", "rate") else pair.target
    named = "the model" if pair.target == "." else pair.target
    what = _WHAT[pair.kind].replace("{target}", named)
    same = "identical" if exact else f"equal within rounding ({rounding:.1g})" if rounding else "equal"
    begin = (
        f"The runs differ from the first recorded step on, step {pair.step:,}"
        if pair.step == first
        else f"The runs are {same} up to step {pair.step - 1:,}"
    )
    more = f" ({others:,} more {'differs' if others == 1 else 'differ'} in the same way)" if others > 0 else ""
    where = "" if pair.step == first else f" in step {pair.step:,}"
    sentence = (
        f"{begin}. The first difference is {what}{where}{_how_much(pair, relative)}{more}. {_before(step, pair)}."
    )
    return Difference(sentence, False, exact, pair.step, target, pair.kind, relative, others)


def _how_much(pair: Pair, relative: float) -> str:
    if pair.kind in ("loss", "rate"):
        a, b = next(iter(pair.numbers.values()))
        return f": {a:.6g} and {b:.6g}"
    if math.isinf(relative):
        return ": a value is not finite in only one run, or zero in only one run"
    return f", relative {relative:.1g}" if relative else ", in bits that its norm does not show"


def _before(step: list[Pair], pair: Pair) -> str:
    """Say what is known to be equal."""
    before = {other.kind for other in step if other.place < pair.place}
    if pair.kind == "forward" and "weights" not in before:
        return "Everything that was recorded before it in this step is equal"
    if pair.kind == "backward" and "forward" not in before:
        return "The gradients of later layers are equal"
    return _BEFORE[pair.kind]


def say_equal(first: int, last: int, compared: int, *, exact: bool, rounding: float) -> Difference:
    """Return that there is no difference."""
    steps = f"steps {first:,} to {last:,}" if last > first else f"step {first:,}"
    if exact:
        sentence = f"The runs are identical in {steps}: {compared:,} tensors and numbers are equal."
    else:
        sentence = (
            f"The runs are equal in {steps}, apart from rounding: of {compared:,} tensors and numbers, the largest "
            f"relative difference is {rounding:.1g}."
        )
    return Difference(sentence, True, exact)


def nothing_to_compare(pairs: Pairs) -> Difference:
    """Return that the runs have nothing in common."""
    if pairs.last < pairs.first:
        why = "they have no step in common"
    else:
        why = "no hook recorded the same targets in both; record both with `tenterhook run --for-diff 100`"
    return Difference(f"The runs cannot be compared, because {why}.", None)
