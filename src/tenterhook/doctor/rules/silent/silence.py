"""Find out why a hook never fired: for its kind of hook, check each possible reason until one applies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, FULL, MULTI, STEP, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.compiler import COMPILED_NODE, traced
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.compiled import gradient_not_kept
from tenterhook.doctor.rules.distributed import not_synced, shard_is_not_in_the_graph
from tenterhook.doctor.rules.registry import has_successor, plural
from tenterhook.doctor.rules.silent.never_fired import (
    OF_ONE_AMONG_MANY,
    called_functionally,
    checkpoint_without_gradient,
    compiled_before,
    frozen,
    gradient_was_none,
    never_called,
    no_backward,
    not_in_this_backward,
    not_on_the_way_to_the_loss,
    output_without_tensors,
    registered_too_late,
    removed_before_it_could_fire,
    step_skipped,
    tensor_let_go,
    used_without_a_call,
    without_grad,
)
from tenterhook.doctor.rules.silent.not_installed import frozen_target, model_was_copied
from tenterhook.doctor.rules.silent.replaced import another_model_ran, parameter_replaced
from tenterhook.doctor.rules.surroundings import ran_in_another_process

Reasons = Iterator[Finding | None]


def why_silent(hook: HookRecord, seen: Recording) -> Finding | None:
    """Return a finding that explains why a hook never fired or received no gradient, or None if no reason applies."""
    found = next((reason for reason in _reasons(hook, seen) if reason is not None), None)
    if found is None or found.code not in {one.code for one in OF_ONE_AMONG_MANY}:
        return found
    siblings = (h for h in seen.hooks if h.caller.place == hook.caller.place and h.kind == hook.kind)
    return replace(found, severity="note") if any(h.fired for h in siblings) else found


def _reasons(hook: HookRecord, seen: Recording) -> Reasons:
    if hook.kind == MULTI and hook.nones:
        return iter([gradient_was_none(hook)])
    if hook.fired and hook.fired == hook.nones:
        return iter([gradient_not_kept(hook) if hook.owner.made_by == COMPILED_NODE else gradient_was_none(hook)])
    if hook.fired or hook.raised or hook.traced or _is_traced(hook, seen) or hook.overwrote or hook.taken_off:
        return iter(())
    if hook.kind in BACKWARD and seen.events.children:
        return iter([ran_in_another_process(hook, seen)])
    for kinds, reasons in ((TENSOR, _tensor), (FORWARD, _forward), (BACKWARD, _backward), (STEP, _step)):
        if hook.kind in kinds:
            return reasons(hook, seen)
    return iter(())


def _is_traced(hook: HookRecord, seen: Recording) -> bool:
    """Return True if compiled code contains the hook or a hook with the same function.

    Modules of the same class can share compiled code.
    """
    alike = (h for h in seen.hooks if h.code is hook.code and h.kind == hook.kind) if hook.code is not None else (hook,)
    return any(h.serial in traced for h in alike)


def _tensor(hook: HookRecord, seen: Recording) -> Reasons:
    yield from _nothing_ran(hook, seen)
    if not hook.missed_backwards:
        return
    owner, events, last = hook.owner, seen.events, hook.missed_backwards[-1]
    if last.frozen:
        yield parameter_replaced(hook)
    yield frozen(hook)
    if owner.group is not None and not last.replaced:
        yield shard_is_not_in_the_graph(hook)
        yield not_synced(hook)
    if not last.inside:
        yield checkpoint_without_gradient(hook, events.blind_checkpoints)
    yield without_grad(hook)
    if last.other is not None:
        yield _another(hook, last.other, seen)
    yield called_functionally(hook, events.functional)
    yield parameter_replaced(hook)
    if last.inside:
        yield not_in_this_backward(hook)
        yield gradient_was_none(hook)
    yield tensor_let_go(hook)
    yield not_on_the_way_to_the_loss(hook)


def _forward(hook: HookRecord, seen: Recording) -> Reasons:
    timeline = seen.events.timeline
    if not isinstance(hook.owner.now(), nn.Module):
        return
    if hook.copies_fired:
        yield _another(hook, hook.owner.place.model.__name__ if hook.owner.place is not None else "model", seen)
    yield ran_in_another_process(hook, seen)
    if hook.removed is not None:
        yield compiled_before(hook, seen)
        yield used_without_a_call(hook, seen.events.module_calls.around)
        now = timeline.now()
        if (now.sequence, now.passes) != (hook.removed.sequence, hook.removed.passes):
            yield removed_before_it_could_fire(hook, timeline.backwards)
        if hook.removed.passes > hook.born.passes:
            yield never_called(hook)
        return
    last = hook.missed_backwards[-1] if hook.missed_backwards else None
    if last is not None and last.other is not None:
        yield _another(hook, last.other, seen)
    yield compiled_before(hook, seen)
    if last is not None:
        yield registered_too_late(hook)
    yield used_without_a_call(hook, seen.events.module_calls.around)
    yield never_called(hook)


def _backward(hook: HookRecord, seen: Recording) -> Reasons:
    yield from _nothing_ran(hook, seen)
    if not hook.missed_backwards:
        return
    last = hook.missed_backwards[-1]
    if last.other is not None:
        yield _another(hook, last.other, seen)
    if not isinstance(hook.owner.now(), nn.Module):
        return
    yield compiled_before(hook, seen)
    if hook.kind in FULL and (hook.calls is None or not hook.calls.count):
        yield registered_too_late(hook)
        yield used_without_a_call(hook, seen.events.module_calls.around)
        yield never_called(hook)
        return
    yield checkpoint_without_gradient(hook, seen.events.blind_checkpoints)
    yield without_grad(hook)
    yield output_without_tensors(hook)
    yield _constant_output(hook)
    yield not_in_this_backward(hook)
    yield not_on_the_way_to_the_loss(hook)


def _step(hook: HookRecord, seen: Recording) -> Reasons:
    yield step_skipped(hook, seen.events.skipped_steps)
    if hook.removed is None and seen.events.timeline.backwards > hook.born.backwards:
        yield never_called(hook)


def _nothing_ran(hook: HookRecord, seen: Recording) -> Reasons:
    """Yield the reasons that apply if no backward pass ran while the hook was registered."""
    ran = seen.events.timeline.backwards
    until = hook.removed.backwards if hook.removed is not None else ran
    if until > hook.born.backwards:
        return
    if hook.removed is not None:
        yield removed_before_it_could_fire(hook, ran)
        return
    yield registered_too_late(hook)
    yield no_backward(hook)


def why_stopped(hook: HookRecord, seen: Recording) -> Finding | None:
    """Return a finding that explains why a hook fired in some passes and not in others, or None."""
    place = hook.owner.place
    if hook.kind in (*FORWARD, *TENSOR) and place is not None and hook.removed is None and hook.last is not None:
        timeline, root = seen.events.timeline, place.root()
        after = timeline.others[place.model] - hook.others_then
        still = root is not None and seen.events.module_calls.around.get(root, 0) == hook.fired
        if hook.kind in TENSOR or root is None:
            still = timeline.passes == hook.last.passes and timeline.backwards > hook.last.backwards
        if after > 1 and still and not hook.copies_fired and not has_successor(hook, seen):
            return another_model_ran(hook, place.model.__name__, calls=after)
    if hook.kind not in FULL or hook.removed is not None or hook.last is None:
        return None
    since = seen.events.timeline.backwards - hook.last.backwards
    ran = f"the backward pass ran {plural(since, 'time')} since the hook last fired"
    return _constant_output(hook, ran) if since > 0 else None


def _constant_output(hook: HookRecord, ran: str = "") -> Finding | None:
    calls = hook.calls
    if calls is None or not calls.constant or (not ran and calls.constant < calls.count):
        return None
    return frozen_target.quote(
        hook,
        (f"{ran}; " if ran else "")
        + "the output of the module does not require grad, because neither its input nor one of its parameters does",
        "x.requires_grad_(True)  # the input of the model, so that a gradient flows through the frozen layers",
    )


def _another(hook: HookRecord, model: str, seen: Recording) -> Finding | None:
    if hook.copies_fired:
        return model_was_copied(hook, model)
    return another_model_ran(hook, model) if not has_successor(hook, seen) else None
