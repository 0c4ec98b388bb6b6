"""Implement `examine`: record what happens to hooks, and turn the recording into findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

from torch import nn

from tenterhook.doctor.check import check_rig
from tenterhook.doctor.findings import Finding, Findings
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.observe.source import evaluations
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rank_comparison import compared
from tenterhook.doctor.rules.compiled import (
    breaks_the_graph,
    compiled_again_and_again,
    compiled_by_itself,
    compiled_without_it,
    of_the_program,
    operation_left_out,
)
from tenterhook.doctor.rules.distributed import across_ranks, before_reduction
from tenterhook.doctor.rules.errors import failures
from tenterhook.doctor.rules.hazards import (
    always_retains,
    changes_in_place,
    evaluates_text,
    gone_at_its_recomputation,
    hooks_every_module,
    leaks,
    legacy_hook,
    taken_off,
    took_the_place_of_another,
    waits_for_the_device,
)
from tenterhook.doctor.rules.kept_values import (
    both_phases,
    fewer_arguments,
    ignores_the_prefix,
    kept_values_changed,
    parameter_for_its_gradient,
    replaced_output,
    stored_none,
    stored_together,
    without_keyword_arguments,
)
from tenterhook.doctor.rules.never_fired import module_replaced, optimizer_replaced
from tenterhook.doctor.rules.no_effect import (
    changes_the_layers_before,
    cleared_before_the_step,
    divided_out_by_clipping,
    divided_out_by_the_optimizer,
    grad_of_no_leaf,
    limit_on_scaled_gradient,
    moved_all_the_same,
    no_optimizer_holds_it,
    returned_nothing,
    returned_what_it_was_given,
)
from tenterhook.doctor.rules.not_installed import handle_was_loaded, model_was_copied, nothing_hooked
from tenterhook.doctor.rules.registry import Subject, found
from tenterhook.doctor.rules.silence import why_silent
from tenterhook.doctor.rules.timing import (
    acts_on_each_backward,
    changed_in_place_since,
    fires_after_its_removal,
    fires_in_a_recomputation,
    in_both_passes,
    no_input_gradient,
    repeated,
    several_calls,
    steps_inside_the_backward,
)
from tenterhook.text_table import TextTable


class Exam(Recording):
    """A context manager that watches raw PyTorch hooks in its block and diagnoses them when the block ends.

    `th.examine` creates an exam. Print the exam to see a table of all watched hooks and the findings.

    Args:
        model: A model whose existing hooks are also watched. Hooks that are registered inside the block are always
            watched, on any model.

    Attributes:
        findings: The findings of the exam, most severe first. Empty until the block has ended.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> linear = torch.nn.Linear(2, 1)
        >>> with th.Exam(linear) as exam:
        ...     handle = linear.weight.register_hook(lambda grad: grad * 0.5)
        ...     linear(torch.ones(1, 2)).sum().backward()
        >>> exam.hooks[0].fired, exam.findings.codes
        (1, [])
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__(model)
        self.findings = Findings(())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self.watches:
            return
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
    """Watch raw PyTorch hooks in a `with` block, and report why hooks did not fire or had no effect.

    The block should contain the code that registers the hooks and at least one training step. Hooks run as they would
    without the exam. When the block ends, even after an error, every patched PyTorch function is restored.

    Args:
        model: A model whose existing hooks are also watched. Without a model, only hooks that are registered inside the
            block are watched.

    Returns:
        An exam, to be used as a context manager. After the block, `exam.findings` holds the findings, and `exam.hooks`
        holds a record of each hook.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> linear = torch.nn.Linear(2, 1)
        >>> def halve(grad):
        ...     grad = grad * 0.5  # the return statement is missing
        >>> with th.examine(linear) as exam:
        ...     handle = linear.weight.register_hook(halve)
        ...     linear(torch.ones(1, 2)).sum().backward()
        >>> exam.findings.codes
        ['TH301']
    """
    return Exam(model)


def _fate(hook: HookRecord) -> str:
    if hook.removed is not None:
        return "removed"
    if not hook.alive:
        return "freed with its tensor" if hook.owner.now() is None else "deleted without its handle"
    return "registered"


#: rules that apply to a hook that fired, in the order in which their findings are listed
FIRED = (
    returned_nothing,
    cleared_before_the_step,
    moved_all_the_same,
    divided_out_by_clipping,
    divided_out_by_the_optimizer,
)
#: rules for a hook that fired too often or at the wrong time
WRONG_MOMENT = (
    in_both_passes,
    acts_on_each_backward,
    several_calls,
    fires_in_a_recomputation,
    no_input_gradient,
    changed_in_place_since,
    model_was_copied,
    fires_after_its_removal,
)
#: rules that apply to every hook, in the order in which their findings are listed
EVERY = (
    changes_in_place,
    gone_at_its_recomputation,
    kept_values_changed,
    without_keyword_arguments,
    stored_none,
    both_phases,
    parameter_for_its_gradient,
    replaced_output,
    fewer_arguments,
    ignores_the_prefix,
    waits_for_the_device,
    legacy_hook,
    took_the_place_of_another,
    taken_off,
)


def _diagnose(seen: Recording) -> Iterator[Finding]:
    yield from failures(seen)
    for place in dict.fromkeys(seen.loaded_handles):
        yield from found(handle_was_loaded(Subject(place=place)))
    yield from repeated(seen)
    yield from stored_together(seen)
    yield from leaks(seen)
    diff, timeline = compared(seen), seen.events.timeline
    yield from across_ranks(seen, diff)
    for hook in seen.hooks:
        replaced = module_replaced(hook, timeline) or optimizer_replaced(hook, seen)
        if replaced is not None and not hook.foreign:
            yield replaced
        elif seen.failure is None:
            yield from found(why_silent(hook, seen))
        yield from found(*(rule(hook) for rule in EVERY))
        if hook.fired:
            yield from _of_a_fired_hook(hook, seen)
        yield from found(changes_the_layers_before(hook))
        yield from before_reduction(hook, seen, diff)
        yield from found(compiled_without_it(hook, seen), operation_left_out(hook, seen))
        if seen.failure is None:
            rules = (compiled_by_itself, compiled_again_and_again, breaks_the_graph)
            yield from found(*(rule(hook, seen) for rule in rules))
    yield from _of_the_program(seen)
    for rig, place in seen.rigs:
        yield from (replace(one, place=place) for one in check_rig(rig))
    if not seen.hooks and not seen.rigs and not seen.refusals and not seen.everywhere and seen.failure is None:
        yield from found(nothing_hooked(Subject(), timeline.backwards, timeline.steps))


def _of_a_fired_hook(hook: HookRecord, seen: Recording) -> Iterator[Finding]:
    yield from found(*(rule(hook) for rule in FIRED))
    yield from found(no_optimizer_holds_it(hook, seen.events.timeline.steps))
    yield from found(limit_on_scaled_gradient(hook), returned_what_it_was_given(hook))
    yield from found(*(rule(hook) for rule in WRONG_MOMENT))


def _of_the_program(seen: Recording) -> Iterator[Finding]:
    """Yield the findings that concern the whole program rather than one hook."""
    tensors = [h for h in seen.hooks if h.kind == "register_hook" and not h.owner.leaf and not h.foreign]
    if seen.warned and tensors:
        yield from found(grad_of_no_leaf(tensors[-1], seen.warned[0]))
    yield from of_the_program(seen)
    events = seen.events
    yield from found(always_retains(Subject(place=events.retained_at), events.retained, events.timeline.backwards))
    if events.steps_inside and events.empty_clips:
        about = Subject(place=events.empty_clips[0])
        yield from found(steps_inside_the_backward(about, events.steps_inside, len(events.empty_clips)))
    for kind, by in seen.everywhere:
        yield from found(hooks_every_module(Subject(place=by.place), kind))
    for path in sorted(seen.files):
        for line in evaluations(path):
            yield from found(evaluates_text(Subject(place=f"{path}:{line}")))


def _merged(found: Iterator[Finding]) -> list[Finding]:
    """Merge equal findings about one line, because a loop may register many hooks on that line."""
    first: dict[tuple[str, str | None, str | None], Finding] = {}
    more: dict[tuple[str, str | None, str | None], int] = {}
    for one in found:
        key = (one.code, one.place, one.hook)
        if key in first and one.place is not None:
            more[key] = more.get(key, 0) + 1
        else:
            first[key if one.place is not None else (one.code, one.evidence, one.hook)] = one
    return [
        replace(one, evidence=f"{one.evidence} (and {more[key]} more from this line)") if key in more else one
        for key, one in first.items()
    ]
