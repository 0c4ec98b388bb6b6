"""Apply the rules to a recording: choose those that may explain what was seen, and list their findings in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tenterhook.doctor.check import check_rig
from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_kinds import BACKWARD, STATE, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Failure, Recording
from tenterhook.doctor.rank_comparison import compared
from tenterhook.doctor.reading.program_text import evaluations, missing_calls, node_hooks
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
    remove_is_not_called,
    taken_off,
    took_the_place_of_another,
    waits_for_the_device,
)
from tenterhook.doctor.rules.moments.circumstances import OF_A_HOOK, keys_with_another_prefix
from tenterhook.doctor.rules.moments.timing import (
    acts_on_each_backward,
    before_the_closure,
    changed_in_place_since,
    counts_another_loss,
    fires_after_its_removal,
    fires_in_a_recomputation,
    in_both_passes,
    in_parts,
    no_input_gradient,
    reads_before_accumulation,
    removed_before_later_passes,
    removed_in_part,
    repeated,
    schedules_another_optimizer,
    several_calls,
    stacked,
    steps_for_another_loss,
    steps_for_each_part,
    steps_inside_the_backward,
)
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
from tenterhook.doctor.rules.registry import Subject, found, has_successor
from tenterhook.doctor.rules.silent.never_fired import compiled_before, not_in_this_backward, used_without_a_call
from tenterhook.doctor.rules.silent.not_installed import handle_was_loaded, model_was_copied, nothing_hooked, selections
from tenterhook.doctor.rules.silent.replaced import module_replaced, optimizer_replaced, parameter_replaced
from tenterhook.doctor.rules.silent.silence import why_silent, why_stopped
from tenterhook.doctor.rules.surroundings import (
    called_by_a_trace_only,
    in_two_models,
    inside_a_wrapper,
    no_state_dict,
    not_observed,
    of_every_use,
    on_a_node,
    on_several_optimizers,
    on_the_root_of_a_trace,
    replaces_the_reduction,
    returns_early_while_compiling,
    skipped_after_an_error,
    step_inside_a_step,
)
from tenterhook.doctor.rules.values.received_values import (
    changes_the_data,
    changes_weights_before_each_pass,
    first_sample,
    ignores_the_prefix,
    parameter_for_its_gradient,
    without_keyword_arguments,
    written_and_computed_again,
)
from tenterhook.doctor.rules.values.returned_values import (
    after_the_loss,
    fewer_arguments,
    in_another_order,
    of_another_shape,
    replaced_output,
    replaces_the_derivative,
    return_is_ignored,
    stored_before_the_change,
    without_graph,
)
from tenterhook.doctor.rules.values.stored_values import (
    adds_in_half_precision,
    another_tensor_unpacked,
    both_phases,
    bound_to_its_context,
    first_of_all_passes,
    in_order_of_the_backward_pass,
    kept_values_changed,
    last_pass_before_the_backward,
    looked_for_by_id,
    of_several_threads,
    overflowed,
    packed_in_another_thread,
    read_after_the_loop,
    stored_none,
    stored_together,
    without_graph_in_a_checkpoint,
)

#: rules that apply to a hook that fired, in the order in which their findings are listed
FIRED = (
    returned_nothing,
    cleared_before_the_step,
    moved_all_the_same,
    divided_out_by_clipping,
    divided_out_by_the_optimizer,
)
#: findings about an object that was replaced; they do not apply if the hook was registered again
REPLACED = tuple(one.code for one in (parameter_replaced, module_replaced, optimizer_replaced))
#: rules for a hook that fired too often or at the wrong time
WRONG_MOMENT = (
    reads_before_accumulation,
    before_the_closure,
    steps_for_another_loss,
    counts_another_loss,
    removed_before_later_passes,
    acts_on_each_backward,
    several_calls,
    fires_in_a_recomputation,
    no_input_gradient,
    changed_in_place_since,
    model_was_copied,
    fires_after_its_removal,
    used_without_a_call,
)
#: rules that apply to every hook, in the order in which their findings are listed
EVERY = (
    changes_in_place,
    in_both_passes,
    gone_at_its_recomputation,
    kept_values_changed,
    without_keyword_arguments,
    stored_none,
    without_graph_in_a_checkpoint,
    first_of_all_passes,
    both_phases,
    parameter_for_its_gradient,
    replaced_output,
    fewer_arguments,
    in_another_order,
    return_is_ignored,
    ignores_the_prefix,
    changes_the_data,
    first_sample,
    of_another_shape,
    after_the_loss,
    without_graph,
    of_every_use,
    returns_early_while_compiling,
    step_inside_a_step,
    in_two_models,
    replaces_the_derivative,
    bound_to_its_context,
    adds_in_half_precision,
    overflowed,
    of_several_threads,
    changes_weights_before_each_pass,
    written_and_computed_again,
    waits_for_the_device,
    legacy_hook,
    took_the_place_of_another,
)


def diagnose(seen: Recording, earlier: dict[HookRecord, list[Finding]], together: list[Finding]) -> Iterator[Finding]:
    """Yield the findings.

    `earlier` contains those of hooks whose objects no longer exist, and that did nothing since. Only for the lines that
    registered such hooks, the earlier findings about several hooks, in `together`, are used.
    """
    each = seen.events.errors.until_error
    yield from each(failures(seen))
    for place in seen.loaded_handles.places:
        yield from found(handle_was_loaded(Subject(place=place)))
    now = list(each(of_several_hooks(seen)))
    known = {(one.code, one.place) for one in now}
    gone = {hook.caller.place for hook in earlier}
    yield from now
    yield from (one for one in together if one.place in gone and (one.code, one.place) not in known)
    diff, timeline = compared(seen), seen.events.timeline
    yield from each(across_ranks(seen, diff))
    for hook in seen.hooks:
        if hook in earlier:
            again = has_successor(hook, seen)
            yield from (one for one in earlier[hook] if not again or one.code not in REPLACED)
            yield from found(why_stopped(hook, seen) if hook.fired else None)
        else:
            yield from each(of_a_hook(hook, seen))
        yield from each(before_reduction(hook, seen, diff))
    yield from each(_of_the_program(seen))
    for rig, place in seen.rigs:
        yield from each(replace(one, place=place) for one in check_rig(rig))
    if seen.children is not None:
        yield from seen.children.findings()
    others = (
        seen.events.children
        or seen.rigs
        or seen.refusals
        or seen.process.everywhere
        or seen.saved_tensors.hooks
        or seen.process.communicates
    )
    on_nodes = any(map(node_hooks, seen.program_files))
    if not seen.hooks and not others and not on_nodes and seen.failure is None:
        yield from found(nothing_hooked(Subject(minor=True), timeline.backwards, timeline.steps))


def of_the_exam(seen: Recording) -> Iterator[Finding]:
    """Yield a finding if the exam itself is incomplete."""
    yield from found(not_observed(Subject(), seen.lost, seen.events.errors.first))


def of_several_hooks(seen: Recording) -> Iterator[Finding]:
    yield from repeated(seen)
    yield from stacked(seen)
    yield from removed_in_part(seen)
    yield from stored_together(seen)
    yield from last_pass_before_the_backward(seen)
    yield from read_after_the_loop(seen)
    yield from in_order_of_the_backward_pass(seen)
    yield from leaks(seen)
    yield from selections(seen)


def of_a_hook(hook: HookRecord, seen: Recording) -> Iterator[Finding]:
    timeline = seen.events.timeline
    replaced = module_replaced(hook, timeline) or parameter_replaced(hook, timeline) or optimizer_replaced(hook, seen)
    if replaced is not None and not hook.foreign and not has_successor(hook, seen):
        yield replaced
    elif replaced is None and not seen.lost and (seen.failure is None or _lacks_a_value(hook, seen.failure)):
        yield from found(why_silent(hook, seen))
    yield from found(*(rule(hook) for rule in (*EVERY, *OF_A_HOOK)))
    yield from found(changes_the_layers_before(hook), no_state_dict(hook, seen))
    yield from found(inside_a_wrapper(hook, seen), stored_before_the_change(hook, seen))
    yield from found(skipped_after_an_error(hook, seen), called_by_a_trace_only(hook, seen))
    yield from found(on_the_root_of_a_trace(hook, seen), on_several_optimizers(hook, seen))
    if hook.fired:
        yield from _of_a_fired_hook(hook, seen)
    yield from found(taken_off(hook), compiled_without_it(hook, seen), operation_left_out(hook, seen))
    if seen.failure is None:
        rules = (compiled_by_itself, compiled_again_and_again, breaks_the_graph)
        yield from found(*(rule(hook, seen) for rule in rules))


def _lacks_a_value(hook: HookRecord, failure: Failure) -> bool:
    """Return True if the program may have failed because a hook on the backward pass has stored nothing."""
    lacks = isinstance(failure.error, (AttributeError, TypeError, KeyError, IndexError))
    silent = not hook.fired and hook.raised is None and hook.misfit is None
    return lacks and silent and hook.kind in (*BACKWARD, *TENSOR) and bool(hook.missed_backwards)


def _of_a_fired_hook(hook: HookRecord, seen: Recording) -> Iterator[Finding]:
    yield from found(*(rule(hook) for rule in FIRED))
    events = seen.events
    held = frozenset[int]().union(*(use.parameters for use in events.optimizers.values()))
    yield from found(why_stopped(hook, seen), not_in_this_backward(hook, events.only_returned[hook.owner.id]))
    yield from found(no_optimizer_holds_it(hook, events.timeline.steps, held), compiled_before(hook, seen))
    yield from found(limit_on_scaled_gradient(hook), returned_what_it_was_given(hook))
    yield from found(in_parts(hook, seen), steps_for_each_part(hook, seen), *(rule(hook) for rule in WRONG_MOMENT))


def _of_the_program(seen: Recording) -> Iterator[Finding]:
    """Yield the findings that concern the whole program rather than one hook."""
    tensors = [h for h in seen.hooks if h.kind == "register_hook" and not h.owner.leaf and not h.foreign]
    if seen.process.warned and (tensors or not seen.hooks):
        about = tensors[-1] if tensors else Subject(place=seen.process.warned[0])
        yield from found(grad_of_no_leaf(about, seen.process.warned[0]))
    yield from of_the_program(seen)
    events = seen.events
    yield from found(always_retains(Subject(place=events.retained_at), events.retained, events.timeline.backwards))
    if events.steps_inside and events.empty_clips:
        about = Subject(place=events.empty_clips[0])
        yield from found(steps_inside_the_backward(about, events.steps_inside, len(events.empty_clips)))
    for number, place in events.schedulers.items() if events.steps_inside else ():
        use = events.optimizers.get(number)
        if use is None or not use.with_gradients:
            yield from found(schedules_another_optimizer(Subject(place=place), events.steps_inside))
    for one in seen.saved_tensors.hooks:
        yield from found(packed_in_another_thread(Subject(place=one.caller.place), one, events.backward_threads))
        yield from found(another_tensor_unpacked(Subject(place=one.caller.place), one))
        yield from found(looked_for_by_id(Subject(place=one.caller.place), one))
    for name, by in seen.process.communication:
        yield from found(replaces_the_reduction(Subject(hook=name, by="register_comm_hook", place=by.place)))
    if any(hook.kind in STATE and not hook.foreign for hook in seen.hooks):
        for place, missing, unexpected in events.ignored_keys:
            yield from found(keys_with_another_prefix(Subject(place=place), missing, unexpected))
    for kind, by in seen.process.everywhere:
        yield from found(hooks_every_module(Subject(place=by.place), kind))
    for path in sorted(seen.program_files):
        for line in evaluations(path) if path in seen.files else ():
            yield from found(evaluates_text(Subject(place=f"{path}:{line}")))
        for line in missing_calls(path):
            yield from found(remove_is_not_called(Subject(place=f"{path}:{line}")))
        for line in node_hooks(path):
            yield from found(on_a_node(Subject(place=f"{path}:{line}")))


def merged(found: Iterator[Finding]) -> list[Finding]:
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
