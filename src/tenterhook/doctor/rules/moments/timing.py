"""Implement the TH4xx rules: a hook fired too often, or at the wrong time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from tenterhook.doctor.edits import hook_functions as edits
from tenterhook.doctor.edits.program_lines import loop_over_a_copy
from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_kinds import BACKWARD, MULTI, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.observe.model_index import names_of
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.no_effect import limits
from tenterhook.doctor.rules.registry import Subject, Words, found, plural, rule


@rule("TH401")
def acts_on_each_backward(hook: HookRecord) -> Words | None:
    """Find a hook that limits the gradient of each backward pass, but not the accumulated gradient of the step."""
    if (hook.outside and not hook.reached) or hook.most_in_backward > 1:
        return None  # no optimizer uses the gradient, or it comes in parts
    if hook.kind == TENSOR[1] and hook.changed > hook.reached and hook.fired > hook.reached > 0 and limits(hook):
        return Words(
            f"the hook fired {plural(hook.fired, 'time')} in {plural(hook.reached, 'step')}; it limits the sum of the "
            "gradients after each backward pass, not only before the step",
            f'th.hook(model, th.clip_norm(1.0), on="{hook.owner.name}", at="grad_final", optimizer=optimizer)',
            as_note=True,  # the last of these limits holds for the whole sum
        )
    used = hook.summed if hook.reached else hook.accumulating
    if used and hook.owner.leaf and hook.stored and not hook.changed and hook.reached:
        return Words(
            f"in {hook.accumulating} of {hook.fired} firings, the gradient was added to an existing .grad; the hook "
            "stores the gradient of each backward pass, not the sum that the step uses",
            f'th.hook(model, th.stats(), on="{hook.owner.name}", at="grad_final", optimizer=optimizer)',
            as_note=True,
        )
    if not used or not hook.changed or not hook.owner.leaf or not limits(hook) or _in_both_passes(hook):
        return None
    peak = max((look.peaks[1] for look in hook.samples), default=0.0)
    return Words(
        f"in {hook.accumulating} of {hook.fired} firings, the gradient was added to an existing .grad; the hook "
        f"returned at most {peak:.4g}, but the sum can be larger",
        f'th.hook(model, th.clip_value({peak:.4g}), on="{hook.owner.name}", at="grad_final", optimizer=optimizer)',
    )


@rule("TH418")
def reads_before_accumulation(hook: HookRecord) -> Words | None:
    if not hook.owner.leaf or not hook.fired or not hook.reads_gradients:
        return None
    if hook.kind == MULTI:
        return Words(
            "the hook reads .grad when the last gradient has been computed; PyTorch adds this gradient to .grad after "
            "the hook, so it is missing in one of the parameters",
            "norm = torch.nn.utils.get_total_norm([g for g in grads if g is not None])  # use what the hook receives",
        )
    if hook.kind != TENSOR[0]:
        return None
    return Words(
        "the hook reads .grad; PyTorch adds the gradient of this backward pass to .grad after the hook, so the hook "
        "sees the sum of the passes before, or None",
        "p.register_post_accumulate_grad_hook(fn)  # runs after the gradient was added; fn receives p",
        as_note=True,
        edit=edits.after_accumulation,
    )


@rule("TH419")
def before_the_closure(hook: HookRecord) -> Words | None:
    if not hook.before_closure or not (hook.reads_gradients or hook.calls_method("clip_grad_norm_")):
        return None
    return Words(
        f"in {plural(hook.before_closure, 'step')}, the hook used the gradients, and step() then called the closure, "
        "which computed them again",
        "def closure():\n    optimizer.zero_grad()\n    loss = criterion(model(x), y)\n    loss.backward()\n"
        "    fn()  # in the closure, after the backward pass\n    return loss",
    )


@rule("TH421")
def steps_for_another_loss(hook: HookRecord) -> Words | None:
    if hook.kind != TENSOR[1] or len(hook.backward_places) < 2 or not hook.calls_method("step"):
        return None
    places = " and ".join(sorted(place.rpartition("/")[2] for place in hook.backward_places))
    return Words(
        f"the hook steps an optimizer, and fires in the backward passes that start at {places}, so both losses change "
        "the parameter",
        "for p in discriminator.parameters():\n    p.requires_grad_(False)  # while the other loss runs backward",
    )


@rule("TH429")
def counts_another_loss(hook: HookRecord) -> Words | None:
    """Find a hook that counts its calls, and is called for two losses."""
    if hook.kind not in (*TENSOR, *BACKWARD) or len(hook.backward_places) < 2 or hook.foreign:
        return None
    if not hook.counts and all(one.slot.key is not None for one in hook.stored):
        return None
    places = " and ".join(sorted(place.rpartition("/")[2] for place in hook.backward_places))
    return Words(
        f"the hook fires in the backward passes that start at {places}, and each time changes its count or "
        "adds to its list",
        "for p in discriminator.parameters():\n    p.requires_grad_(False)  # while the other loss runs backward",
    )


@rule("TH430")
def removed_before_later_passes(hook: HookRecord) -> Words | None:
    """Find a method that removes its hooks each time it is called, although they were registered only once."""
    if hook.foreign or not hook.removed_again or not hook.stored:
        return None
    return Words(
        f"the handle was removed, and removed again {plural(hook.removed_again, 'time')} after later passes, in which "
        "the hook did not run; the stored values are those of the passes before",
        "# register the hook in the method that removes it, or remove it only when it is not needed any more",
    )


@rule("TH422")
def in_parts(hook: HookRecord, seen: Recording) -> Words | None:
    if hook.kind not in TENSOR or not hook.owner.leaf or hook.most_in_backward <= 1 or seen.places.several_threads:
        return None
    if not hook.stored and not (hook.changed and limits(hook)):
        return None
    return Words(
        f"the hook fired up to {plural(hook.most_in_backward, 'time')} in one backward pass, because each reentrant "
        "checkpoint that uses the parameter runs a backward pass of its own; the hook sees each part, not the sum",
        "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        as_note=not hook.changed,
    )


@rule("TH423")
def schedules_another_optimizer(about: Subject, inside: int) -> Words:
    return Words(
        f"{plural(inside, 'step')} ran inside a backward pass, in hooks; the optimizer of this scheduler took no step "
        "with gradients, so its learning rate has no effect",
        "scheduler = torch.optim.lr_scheduler.LambdaLR(hook_optimizer, fn)  # one for each optimizer that steps",
    )


@rule("TH402")
def several_calls(hook: HookRecord) -> Words | None:
    if hook.kind not in BACKWARD or hook.most_in_backward <= 1:
        return None
    return Words(
        f"the hook fired up to {plural(hook.most_in_backward, 'time')} in one backward pass, once for each call",
        f'th.hook(model, lambda g, ctx: ..., on="{hook.owner.name}", at="grad_output")  # ctx.call is the call index',
    )


@rule("TH403")
def registered_twice(hook: HookRecord, times: int) -> Words:
    return Words(
        f"{_registered(hook, times)}, so it runs {plural(times, 'time')} instead of once",
        f"handle.remove()  # remove the old hook first\nhandle = target.{hook.kind}(fn)",
    )


@rule("TH404")
def fires_in_a_recomputation(hook: HookRecord) -> Words | None:
    if hook.recomputed_differently and all(hook.recomputed_differently):
        times = plural(len(hook.recomputed_differently), "recomputation")
        return Words(
            f"in {times} of a checkpoint, the hook returned another value than in the forward pass, so the gradients "
            "belong to values that were not used",
            "noise = torch.randn_like(output)  # PyTorch restores its own generator, and no other state, before it\n"
            "                                  # runs the pass again",
        )
    if not hook.recomputed or hook.returned:
        return None
    return Words(
        f"{hook.recomputed} of {hook.fired} firings occurred while a checkpoint recomputed the forward pass",
        f'th.hook(model, th.stats(), on="{hook.owner.name}", at="output")  # observes each call once',
        as_note=True,
    )


@rule("TH405")
def two_names(hook: HookRecord, times: int, other: str) -> Words:
    return Words(
        f"{_registered(hook, times)}, which is also named {other!r}, so the function runs more than once",
        "for name, p in model.named_parameters():  # lists a tied parameter once\n    p.register_hook(fn)",
    )


@rule("TH406")
def in_both_passes(hook: HookRecord) -> Words | None:
    if hook.graphs != {True, False}:
        return None
    done = f"changed {plural(hook.changed, 'gradient')}" if hook.changed else f"fired {plural(hook.fired, 'time')}"
    return Words(
        f"the hook {done}, in backward passes with and without create_graph=True",
        "handle = w.register_hook(fn)\n(g,) = torch.autograd.grad(loss, w, create_graph=True)\n"
        "handle.remove()\ng.sum().backward()",
        as_note=not hook.changed or not hook.owner.leaf or _is_mask(hook),
    )


def _is_mask(hook: HookRecord) -> bool:
    """Return True if the hook only sets elements to zero, which has the same effect in every pass."""
    return (
        bool(hook.samples) and all(look.zeroed is not None or look.equal for look in hook.samples) and not limits(hook)
    )


def _in_both_passes(hook: HookRecord) -> bool:
    return hook.graphs == {True, False} and bool(hook.changed)


@rule("TH407")
def no_input_gradient(hook: HookRecord) -> Words | None:
    if not hook.without_input:
        return None
    return Words(
        f"grad_input was None in {hook.without_input} of {hook.fired} firings",
        f'th.hook(model, fn, on="{hook.below}", at="grad_accumulated")  # calls fn(grad) when .grad is set',
    )


@rule("TH408")
def changed_in_place_since(hook: HookRecord) -> Words | None:
    if not hook.rebased:
        return None
    gone = hook.owner.now() is None  # only the new value was used, so the program may want the old one here
    return Words(
        "the hook received the gradient with respect to the tensor's value before the in-place operation",
        "y = y * 2            # instead of y.mul_(2)\ny.register_hook(fn)  # register the hook after the operation",
        as_note=gone,
    )


@rule("TH409")
def added_again_and_again(hook: HookRecord, times: int, moments: int) -> Words:
    return Words(
        f"{_registered(hook, times)}, in {plural(moments, 'step')}, so it runs once for each registration",
        f"handle = target.{hook.kind}(fn)  # once, before the loop",
    )


@rule("TH410")
def fires_after_its_removal(hook: HookRecord) -> Words | None:
    if not hook.late_firings or hook.kind not in BACKWARD:
        return None
    return Words(
        f"the hook fired {plural(hook.late_firings, 'time')} after handle.remove(), because the forward pass had "
        "added it to the graph",
        "loss.backward()\nhandle.remove()  # after the backward pass",
    )


@rule("TH411")
def steps_inside_the_backward(about: Subject, steps: int, clips: int) -> Words:
    return Words(
        f"{plural(steps, 'step')} ran inside the backward pass; {plural(clips, 'clipping call')} found no gradients",
        "clip_grad_norm_([p], 1.0)  # in the hook, before the step\n"
        "loss.backward()            # or clip and step after the backward pass\n"
        "clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()",
    )


@rule("TH428")
def steps_for_each_part(hook: HookRecord, seen: Recording) -> Words | None:
    """Find a hook that steps an optimizer in each backward pass, although the program accumulates gradients."""
    steps = seen.events.timeline.steps_of_parts.get(hook.label)
    if steps is None:
        return None
    parts, count = steps.most_common(1)[0]
    if count * parts < 2 * hook.fired:
        return None  # the hook waits until the gradients are complete
    return Words(
        f"the program divides its loss by {parts}, as if {parts} backward passes made one step; the hook made "
        f"{plural(count, 'step')} in these backward passes, and the gradients were not added up",
        f"calls[p] += 1  # in the hook\nif calls[p] % {parts} == 0:\n    optimizers[p].step()\n"
        "    optimizers[p].zero_grad()",
    )


@rule("TH420")
def partly_removed(hook: HookRecord, removed: int, left: int) -> Words:
    return Words(
        f"{removed} of {plural(removed + left, 'hook')} that this line registered were removed; the others fired "
        "afterwards",
        "for handle in handles:\n    handle.remove()  # do not change the list in this loop\nhandles.clear()",
        edit=loop_over_a_copy,
    )


def removed_in_part(seen: Recording) -> Iterator[Finding]:
    """Find lines that registered several hooks of which some were removed and others not."""
    lines: dict[tuple[str, str], list[HookRecord]] = {}
    for hook in seen.hooks:
        if not hook.foreign:
            lines.setdefault((hook.caller.place, hook.kind), []).append(hook)
    for hooks in lines.values():
        ends = [one.removed for one in hooks if one.removed is not None]
        stay = [one for one in hooks if one.removed is None and one.alive]
        left = [one for one in stay if one.last is not None and ends and one.last > max(ends)]
        if len(ends) > 1 and left:
            yield from found(partly_removed(left[0], len(ends), len(left)))


def _registered(hook: HookRecord, times: int) -> str:
    return f"the function is registered {plural(times, 'time')} on {hook.owner.name!r}"


def repeated(seen: Recording) -> Iterator[Finding]:
    """Find functions that are registered more than once on one target."""
    reported: set[int] = set()
    for hooks in sorted(map(_together, _alike(seen)), key=len, reverse=True):
        if len(hooks) < 2 or any(h.number in reported for h in hooks):
            continue
        reported |= {h.number for h in hooks}
        first, times = hooks[0], len(hooks)
        moments = len({(h.born.backwards, h.born.passes) for h in hooks})
        if moments <= 2 and first.bound and len({h.cells for h in hooks}) > 1:
            continue
        if moments > 2:
            yield from found(added_again_and_again(first, times, moments))
        elif others := [name for name in _names_of(first) if name != first.owner.name]:
            yield from found(two_names(first, times, others[0]))
        else:
            yield from found(registered_twice(first, times))


def stacked(seen: Recording) -> Iterator[Finding]:
    """Find hooks of one function that change their values, after an earlier one that the program cannot remove."""
    targets: dict[tuple[object, ...], list[HookRecord]] = {}
    for hook in seen.hooks:
        now, acts = hook.owner.now(), hook.changed or hook.output_changed
        if acts and not hook.foreign and hook.removed is None and hook.alive and now is not None and hook.identity[1]:
            targets.setdefault((id(now), hook.kind, hook.identity[1]), []).append(hook)
    for hooks in targets.values():
        moments = len({one.born.passes for one in hooks})
        places = {one.caller.place for one in hooks}
        differ = len({one.cells for one in hooks}) > 1  # otherwise, `repeated` finds them
        if differ and len(places) > 1 and moments == len(hooks) and all(one.handle_is_lost for one in hooks[:-1]):
            again = added_again_and_again(hooks[0], len(hooks), moments)
            yield from found(replace(again, severity="note") if again is not None else None)


def _alike(seen: Recording) -> list[list[HookRecord]]:
    """Group the hooks on each target by function, and again by code object and by the line that registered them."""
    groups: dict[tuple[object, ...], list[HookRecord]] = {}
    for hook in seen.hooks:
        now = hook.owner.now()
        if hook.foreign or (hook.removed is None and not hook.alive) or now is None:
            continue
        function, code = hook.identity
        groups.setdefault((id(now), hook.kind, function), []).append(hook)
        if code:
            groups.setdefault((id(now), hook.kind, code, hook.caller.place), []).append(hook)
    return list(groups.values())


def _together(hooks: list[HookRecord]) -> list[HookRecord]:
    """Return the hooks that are registered, or fired after the next of them was registered."""
    found = [one for one, after in pairwise(hooks) if one.removed is None or (one.last and one.last > after.born)]
    return found + (hooks[-1:] if found or hooks[-1].removed is None else [])


def _names_of(hook: HookRecord) -> list[str]:
    root = hook.owner.place.root() if hook.owner.place is not None else None
    now = hook.owner.now()
    if root is None or now is None:
        return []
    return names_of(root, now)
