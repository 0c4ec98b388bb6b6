"""From what was seen to findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tenterhook.doctor.check import check_rig
from tenterhook.doctor.findings import Finding, Findings, finding, many
from tenterhook.doctor.rules.compiled import of_compiled, of_the_program
from tenterhook.doctor.rules.distributed import across_ranks, before_the_mean
from tenterhook.doctor.rules.errors import failures, warned
from tenterhook.doctor.rules.hazards import dangers, habits, leaks, loaded_handles
from tenterhook.doctor.rules.never_fired import why_silent
from tenterhook.doctor.rules.no_effect import at_the_wrong_moment, elsewhere, repeated, without_effect
from tenterhook.doctor.rules.rank_comparison import compared

if TYPE_CHECKING:
    from tenterhook.doctor.patch.recording import Exam


def diagnose(exam: Exam) -> Findings:
    return Findings(_merged(_all(exam)))


def _all(exam: Exam) -> Iterator[Finding]:
    yield from failures(exam)
    yield from loaded_handles(exam)
    yield from repeated(exam)
    yield from leaks(exam)
    beside = compared(exam)
    yield from across_ranks(exam, beside)
    for hook in exam.hooks:
        silent = why_silent(hook, exam)
        if silent is not None and exam.failure is None:
            yield silent
        yield from dangers(hook)
        yield from without_effect(hook, exam)
        yield from at_the_wrong_moment(hook)
        yield from elsewhere(hook)
        yield from before_the_mean(hook, beside)
        yield from of_compiled(hook, exam)
    yield from warned(exam)
    yield from of_the_program(exam)
    yield from habits(exam)
    for rig, place in exam.rigs:
        yield from (replace(found, place=place) for found in check_rig(rig))
    course = exam.course
    if not exam.hooks and not exam.rigs and not exam.refusals and not exam.everywhere and exam.failure is None:
        yield finding(
            "TH109",
            f"{many(course.backwards, 'backward')} and {many(course.steps, 'step')} ran, and nothing was hooked",
            'th.hook(model, fn, on="layer*", at="grad")  # a name that matches nothing is an error there',
        )  # fmt: skip


def _merged(found: Iterator[Finding]) -> list[Finding]:
    """One finding for a line that registers many hooks."""
    first: dict[tuple[str, str | None, str | None], Finding] = {}
    more: dict[tuple[str, str | None, str | None], int] = {}
    for one in found:
        key = (one.code, one.place, one.hook)
        if key in first and one.place is not None:
            more[key] = more.get(key, 0) + 1
        else:
            first[key if one.place is not None else (one.code, one.evidence, one.hook)] = one
    return [
        replace(one, evidence=f"{one.evidence} (so too {more[key]} more from this line)") if key in more else one
        for key, one in first.items()
    ]
