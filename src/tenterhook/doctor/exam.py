"""`examine`: record what happens to hooks, and turn it into findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

from torch import nn

from tenterhook.doctor.check import check_rig
from tenterhook.doctor.findings import Finding, Findings, finding, many
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.compiled import of_compiled, of_the_program
from tenterhook.doctor.rules.distributed import across_ranks, before_the_mean
from tenterhook.doctor.rules.errors import failures, warned
from tenterhook.doctor.rules.hazards import dangers, habits, leaks, loaded_handles
from tenterhook.doctor.rules.never_fired import why_silent
from tenterhook.doctor.rules.no_effect import at_the_wrong_moment, elsewhere, repeated, without_effect
from tenterhook.doctor.rules.rank_comparison import compared
from tenterhook.text_table import TextTable


class Exam(Recording):
    """Watch every hook while it is open. `hooks` are their records; when it is over, `findings` is the verdict."""

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__(model)
        self.findings = Findings(())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end(error, tb)
        try:
            self.findings = Findings(_merged(_diagnose(self)))
        finally:
            self._restore()

    def __str__(self) -> str:
        rows = [
            [
                hook.function,
                hook.kind,
                hook.owner.name,
                hook.caller.place,
                hook.fired,
                hook.returned,
                hook.changed,
                hook.reached if hook.owner.leaf else None,
                _fate(hook),
            ]
            for hook in self.hooks
        ]
        head = ("hook", "registered by", "on", "place", "fired", "returned", "changed", "reached a step", "now")
        return f"{TextTable('raw hooks', head, rows).text()}\n\n{self.findings!r}"


def examine(model: nn.Module | None = None) -> Exam:
    """Watch every hook that is registered in the block, and those that are on the model already."""
    return Exam(model)


def _fate(hook: HookRecord) -> str:
    if hook.removed is not None:
        return "removed"
    if not hook.alive:
        return "gone with its tensor" if hook.owner.now() is None else "taken off"
    return "there"


def _diagnose(exam: Recording) -> Iterator[Finding]:
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
        yield from before_the_mean(hook, exam, beside)
        yield from of_compiled(hook, exam)
    yield from warned(exam)
    yield from of_the_program(exam)
    yield from habits(exam)
    for rig, place in exam.rigs:
        yield from (replace(found, place=place) for found in check_rig(rig))
    timeline = exam.course.timeline
    if not exam.hooks and not exam.rigs and not exam.refusals and not exam.everywhere and exam.failure is None:
        yield finding(
            "TH109",
            f"{many(timeline.backwards, 'backward')} and {many(timeline.steps, 'step')} ran, and nothing was hooked",
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
