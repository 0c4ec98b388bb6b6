"""Say where the first value came from that is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tenterhook.record import Verdict
from tenterhook.rig.rerun.operation_watch import Origin
from tenterhook.verdict.case import Case, Examination
from tenterhook.verdict.codes import verdict
from tenterhook.verdict.history import StepNumbers

CONSEQUENCE = "Everything after it is a consequence."
_VALUES = {"nan": "NaN", "inf": "infinity", "-inf": "infinity"}


def nonfinite(case: Case) -> Iterator[Verdict]:
    """Yield a verdict for the first step with a value that is not finite."""
    for exam in case.examinations:
        if (origin := exam.origin) is not None and not _is_doubtful(exam, origin):
            yield _verdict(case, exam, origin)
            return
        numbers = exam.numbers
        found = exam.found
        harmless = found is not None and found.reproduced and found.with_backward  # the norm is too large for float32
        if numbers is not None and not math.isfinite(numbers.total) and not harmless:
            yield _unexplained(exam, case.history.names, numbers)
            return
        if numbers is not None and numbers.loss is not None and not math.isfinite(numbers.loss):
            yield _only_the_loss(exam, numbers.loss)
            return
        if numbers is not None and (bad := _bad_weight(case, numbers)) is not None:
            yield bad
            return


def _only_the_loss(exam: Examination, loss: float) -> Verdict:
    return verdict(
        "TH803",
        exam.step,
        f"{exam.place}: the loss was {'NaN' if math.isnan(loss) else 'infinite'}, but all gradients and all outputs of "
        "the model were finite, so this step has no consequence for the weights.",
        evidence=(exam.reason,),
        remedy="check the loss and its targets, for example for a mean over no elements",
    )


def _bad_weight(case: Case, numbers: StepNumbers) -> Verdict | None:
    """Explain a weight that is not finite, although the outputs do not depend on its bad elements yet."""
    names = case.history.names
    bad = [
        n for n, one in zip(names, numbers.weights or (), strict=False) if one is not None and not math.isfinite(one)
    ]
    if not bad:
        return None
    good = [one.step for one in case.history.before(numbers.step) if one.weights is not None]
    first = good[-1] if good else case.history.first
    since = f"Step {first}" if first == numbers.step - 1 else f"Steps {first} to {numbers.step - 1}"
    return verdict(
        "TH804",
        first,
        f"{since}: the optimizer made the parameter '{bad[0]}' not finite, although all gradients were finite.",
        target=bad[0],
        evidence=(f"{len(bad)} of {len(names)} parameters are not finite",),
        remedy="check the optimizer's settings, such as the learning rate and eps",
    )


def _is_doubtful(exam: Examination, origin: Origin) -> bool:
    """Return True if the origin is only a gradient from outside, but the outputs differed from those of the first run.

    Then the second run did not show what happened in the first one.
    """
    return origin.source == "gradient" and exam.found is not None and not exam.found.reproduced


def _verdict(case: Case, exam: Examination, origin: Origin) -> Verdict:
    value, step, where = _VALUES[origin.value], exam.step, f"'{origin.name}'" if origin.name else "the model itself"
    evidence = _evidence(exam, origin)
    match origin.source:
        case "forward":
            return verdict(
                "TH801",
                step,
                f"{exam.place}: {where} produced the first {value} in the forward pass, in the operation "
                f"{origin.operation}; its input was finite. {CONSEQUENCE}",
                target=origin.name,
                evidence=evidence,
                remedy=f"check the operation {origin.operation} in {where}: {_hint(origin)}",
            )
        case "backward":
            node = origin.operation.partition(":")[0]
            return verdict(
                "TH801",
                step,
                f"{exam.place}: the backward pass of {where} produced the first {value}, in {node}; all values of the "
                f"forward pass and the gradient that reached it were finite. {CONSEQUENCE}",
                target=origin.name,
                evidence=evidence,
                remedy=f"check the operation in {where} whose derivative is not finite, such as a square root of zero",
            )
        case "input":
            return verdict(
                "TH802",
                step,
                f"{exam.place}: the program passed {_a(value)} to the model, in the argument '{origin.name}'. "
                f"{CONSEQUENCE}",
                target=origin.name,
                evidence=evidence,
                remedy="check the data of this step, and the code that prepares them",
            )
        case "gradient":
            return verdict(
                "TH803",
                step,
                f"{exam.place}: the loss produced the first {value}: all outputs of the model were finite, but the "
                f"gradient that reached them was not. {CONSEQUENCE}",
                evidence=evidence,
                remedy="check the loss and its targets, for example for a logarithm of zero",
            )
        case _:
            return _found_before(case, exam, origin, evidence)


def _found_before(case: Case, exam: Examination, origin: Origin, evidence: tuple[str, ...]) -> Verdict:
    """Explain a parameter or buffer that was not finite before the step."""
    before = case.numbers(exam.step - 1)
    what = f"the {origin.source} '{origin.name}'"
    if origin.source == "parameter" and before is not None and math.isfinite(before.total):
        return verdict(
            "TH804",
            before.step,
            f"Step {before.step}: the optimizer's step made {what} not finite, although all gradients were finite. "
            f"{CONSEQUENCE}",
            target=origin.name,
            evidence=evidence,
            remedy="check the optimizer's settings, such as the learning rate and eps",
        )
    return verdict(
        "TH804",
        exam.step,
        f"{exam.place}: {what} was not finite before the step. {CONSEQUENCE}",
        target=origin.name,
        evidence=evidence,
        remedy="check what changed it before this step, such as a checkpoint that was loaded",
    )


def _unexplained(exam: Examination, names: Sequence[str], numbers: StepNumbers) -> Verdict:
    bad = [n for n, norm in zip(names, numbers.norms, strict=False) if norm is not None and not math.isfinite(norm)]
    why = exam.refusal or "the step gave other values when it ran again"
    if exam.found is not None and exam.found.reproduced and not exam.found.with_backward:
        why = "only the forward pass of a sharded model can run again, and all of its values were finite"
    return verdict(
        "TH801",
        exam.step,
        f"{exam.place}: {len(bad)} of {len(numbers.norms)} gradients are not finite; the origin of the first one is "
        f"unknown, because {why}.",
        evidence=(exam.reason,),
        remedy="run the program again with th.find_nonfinite",
    )


def _evidence(exam: Examination, origin: Origin) -> tuple[str, ...]:
    found = exam.found
    assert found is not None
    lines = [exam.reason]
    if origin.largest is not None and math.isfinite(origin.largest):
        lines.append(f"the largest magnitude among the inputs of the operation was {origin.largest:.3g}")
    lines.append(
        "the step ran again and gave the same values"
        if found.reproduced
        else "the step ran again, but gave other values than at first"
    )
    return tuple(lines)


def _a(value: str) -> str:
    return f"an {value}" if value == "infinity" else f"a {value}"


def _hint(origin: Origin) -> str:
    if origin.value == "nan":
        return "a logarithm or root of a negative number, or a division of zero by zero, is NaN"
    return "a division by zero, or a number too large for its dtype, is infinite"
