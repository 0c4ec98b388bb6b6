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
#: what should be equal on all ranks
_EQUAL: tuple[Kind, ...] = ("weights", "loss", "backward", "rate", "update")
_NAMES: dict[Kind, str] = {
    "data": "the input of the model",
    "weights": "the weights that are trained",
    "forward": "the outputs of earlier layers",
}
#: what is computed before a gradient
_EARLIER: dict[Kind, str] = {
    "forward": "the outputs",
    "loss": "the loss",
    "backward": "the gradients of later layers",
}
_SINGULAR = ([_EARLIER["loss"]], [_NAMES["data"]])
#: what the kinds before it say
_BEFORE: dict[Kind, str] = {
    "data": "Check the data, its order and the seed of its random numbers",
    "weights": "The weights were changed outside the optimizer's step, or they were initialized differently",
    "loss": "The outputs are equal, so the labels or the loss function differ",
    "rate": "The gradients are equal",
    "update": "The gradients are equal, so the optimizer, its settings or its state differ",
}


class Compared:
    """Counts what was compared so far.

    Args:
        pairs: The numbers that the runs have in common.
        exact: True if bits are compared.
    """

    def __init__(self, pairs: Pairs, *, exact: bool) -> None:
        self.pairs = pairs
        self.exact = exact
        #: the largest relative difference that rounding explains
        self.rounding = 0.0
        self.count = 0
        #: True if digests were compared, so that equal numbers mean equal bits
        self.bits = False
        #: the last step with weights, outputs or updates, and the last step with any number
        self.last_tensor: int | None = None
        self.last: int | None = None

    def add(self, step: list[Pair]) -> None:
        """Count the pairs of a step that are equal."""
        self.count += len(step)
        self.bits |= self.exact and any(pair.digests for pair in step)
        self.last = step[0].step
        if any(pair.kind in ("weights", "forward", "update") for pair in step):
            self.last_tensor = self.last


def describe(step: list[Pair], found: list[tuple[Pair, float]], compared: Compared) -> Difference:
    """Return the first difference.

    Args:
        step: All pairs of the step.
        found: The pairs that differ, in order, with their relative differences.
        compared: What was compared before.
    """
    pair, relative = found[0]
    exact, rounding, first = compared.exact, compared.rounding, compared.pairs.first
    others = len({other.target for other, _ in found if other.kind == pair.kind}) - 1
    target = None if pair.kind in ("data", "loss", "rate") else pair.target
    rank = pair.rank if _is_of_one_rank(step, found, compared.pairs) else None
    named = "the model" if pair.target == "." else pair.target
    what = _WHAT[pair.kind].replace("{target}", named) + (f" on rank {rank}" if rank is not None else "")
    same = "identical" if compared.bits else f"equal within rounding ({rounding:.1g})" if rounding else "equal"
    begin = (
        f"The runs differ from the first recorded step on, step {pair.step:,}"
        if pair.step == first
        else f"The runs are {same} up to step {pair.step - 1:,}"
    )
    more = f" ({others:,} more {'differs' if others == 1 else 'differ'} in the same way)" if others > 0 else ""
    where = (_in_call(pair) if exact else "") + (f" in step {pair.step:,}" if pair.step != first else "")
    sentence = f"{begin}. The first difference is {what}{where}{_how_much(pair, relative)}{more}. "
    sentence += f"{_before(step, pair, compared.pairs)}.{_limits(compared)}"
    return Difference(sentence, False, exact, pair.step, target, pair.kind, relative, others, rank)


def _is_of_one_rank(step: list[Pair], found: list[tuple[Pair, float]], pairs: Pairs) -> bool:
    """Return True if the first difference belongs to the rank that recorded it, and not to all ranks."""
    first = found[0][0]
    if max(pairs.ranks) == 1 or not pairs.all_ranks:
        return False
    if first.kind not in _EQUAL:
        return True
    same = (first.kind, first.target)
    recorded = sum((pair.kind, pair.target) == same for pair in step)
    return sum((pair.kind, pair.target) == same for pair, _ in found) < recorded


def _in_call(pair: Pair) -> str:
    """Return in which of several calls of a step a module differs."""
    first = pair.first_call
    return f" in call {first.call} of {pair.calls}" if first is not None and pair.calls > 1 else ""


def _how_much(pair: Pair, relative: float) -> str:
    if pair.lacking:
        return ", which only one of the runs has"
    if pair.kind in ("loss", "rate"):
        a, b = next(iter(pair.numbers.values()))
        return f": {a:.6g} and {b:.6g}"
    if not pair.numbers:
        return ""
    if math.isinf(relative):
        return ": a value is not finite in only one run, or zero in only one run"
    return f", relative {relative:.1g}" if relative else ", in bits that its norm does not show"


def _before(step: list[Pair], pair: Pair, pairs: Pairs) -> str:
    """Return what is known to be equal, as a sentence."""
    before = {other.kind for other in step if other.place < pair.place}
    if pair.kind == "forward":
        known = [_NAMES[kind] for kind in ("data", "weights", "forward") if kind in before]
        return f"Everything that was recorded before it in this step is equal{': ' * bool(known)}{_listed(known)}"
    if pair.kind == "backward":
        known = [_EARLIER[kind] for kind in ("forward", "loss", "backward") if kind in before]
        known = known or [_NAMES[kind] for kind in ("data", "weights") if kind in before]
        text = f"{_listed(known)} {'is' if known in _SINGULAR else 'are'} equal"
        return text[0].upper() + text[1:] if known else "Nothing before it was recorded in this step"
    if pair.kind == "loss" and not pairs.all_ranks:
        return "Only some ranks recorded their outputs, and these are equal"
    if pair.kind == "loss" and "forward" not in before:
        return "No outputs were recorded in this step"
    return _BEFORE[pair.kind]


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _limits(compared: Compared) -> str:
    """Return what was not compared, and why."""
    pairs, said = compared.pairs, ""
    one, other = pairs.setups
    if not compared.exact and one is not None and other is not None:
        values = [(name, getattr(one, name), getattr(other, name)) for name in one.__struct_fields__ if name != "ranks"]
        different = [f"{name} ({a} and {b})" for name, a, b in values if a != b]
        said += f" Bits are not compared, because the setups differ in {_listed(different)}." * bool(different)
    if pairs.ranks[0] != pairs.ranks[1]:
        said += (
            f" Inputs, outputs and losses are not compared, because the runs have {pairs.ranks[0]} and "
            f"{pairs.ranks[1]} ranks."
        )
    return said


def say_equal(compared: Compared) -> Difference:
    """Return that there is no difference, or that nothing could be compared."""
    pairs = compared.pairs
    if compared.last is None:
        return _nothing_to_compare(pairs)
    last = compared.last if compared.last_tensor is None else compared.last_tensor
    steps = f"steps {pairs.first:,} to {last:,}" if last > pairs.first else f"step {pairs.first:,}"
    if compared.exact and not compared.bits:
        sentence = (
            f"The runs recorded equal numbers in {steps}: {compared.count:,} were compared. They recorded no "
            "digests, so their bits may differ."
        )
    elif compared.exact:
        sentence = f"The runs are identical in {steps}: {compared.count:,} tensors and numbers are equal."
    else:
        sentence = (
            f"The runs are equal in {steps}, apart from rounding: of {compared.count:,} tensors and numbers, the "
            f"largest relative difference is {compared.rounding:.1g}."
        )
    if compared.last > last:
        sentence += (
            f" After that, only losses and learning rates were recorded; they are equal up to step {compared.last:,}."
        )
    return Difference(sentence + _limits(compared), True, compared.exact)


def _nothing_to_compare(pairs: Pairs) -> Difference:
    if pairs.last < pairs.first:
        why = "they have no step in common"
    else:
        why = "no hook recorded the same targets in both; record both with `tenterhook run --for-diff 100`"
    return Difference(f"The runs cannot be compared, because {why}.", None)
