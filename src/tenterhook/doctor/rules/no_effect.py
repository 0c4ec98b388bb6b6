"""Why a hook that fired had no effect, or another than was meant; why it fired too often, or at the wrong moment."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tenterhook import torch_internals as private
from tenterhook.doctor.findings import Finding, many
from tenterhook.doctor.observe.hook_record import BACKWARD, FORWARD, TENSOR, HookRecord, said
from tenterhook.doctor.patch.recording import Recording

#: optimizers whose update does not know the size of a gradient
SCALE_FREE = frozenset(
    ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "Rprop", "SparseAdam", "Muon"]
)


def without_effect(hook: HookRecord, exam: Recording) -> Iterator[Finding]:
    if not hook.fired:
        return
    yield from _returned_nothing(hook)
    yield from _on_the_way_to_the_step(hook, exam)
    looks = hook.looks
    if looks and all(look.equal for look in looks) and hook.changed:
        yield said(
            hook, "TH302", f"compared {many(len(looks), 'firing')}: every one returned the numbers it was given",
            "# nothing to do if the limit is just not reached",
        )  # fmt: skip


def _returned_nothing(hook: HookRecord) -> Iterator[Finding]:
    reading = hook.reading
    if reading is None or reading.lost is None or hook.returned or hook.foreign:
        return
    if hook.kind not in (TENSOR[0], *FORWARD, *BACKWARD):
        return
    given = reading.arguments[-1] if reading.arguments else "grad"
    named = f"what it makes is called {reading.lost!r}" if reading.lost else "what it makes has no name"
    value = reading.lost or f"{given} * 2"
    shown = f"({value},)" if hook.kind in BACKWARD else value
    yield said(
        hook, "TH301", f"fired {many(hook.fired, 'time')} and returned None each time; {named}, and is thrown away",
        f"def {hook.function.rpartition('.')[2]}({', '.join(reading.arguments)}):\n    ...\n    return {shown}",
    )  # fmt: skip


def _on_the_way_to_the_step(hook: HookRecord, exam: Recording) -> Iterator[Finding]:
    looks, steps = hook.looks, exam.course.timeline.steps
    if hook.cleared:
        yield said(
            hook, "TH308",
            f"it returned a gradient of norm {looks[-1].returned:.4g}; at {hook.cleared} of {hook.reached} steps the "
            "parameter had none, or zero",
            "optimizer.zero_grad()  # before the backward\n"
            "loss.backward()\n"
            "optimizer.step()       # with nothing in between",
        )  # fmt: skip
    moved = [(delta, why) for delta, why in hook.moved if delta]
    if moved and _same_mask(hook):
        delta, why = moved[-1]
        yield said(
            hook, "TH304", f"the step moved elements whose gradient it had made zero, by {delta:.4g}: by {why}",
            'held = {"params": [p], "weight_decay": 0.0, "momentum": 0.0}  # a group of its own\n'
            "p.requires_grad_(False)                                       # or, to hold all of it",
        )  # fmt: skip
    yield from _taken_out_again(hook)
    if hook.changed and steps and hook.outside and not hook.reached and hook.owner.is_parameter:
        yield said(
            hook, "TH310",
            f"it changed the gradient {many(hook.changed, 'time')}; {many(steps, 'step')} ran, of optimizers "
            "that do not hold this parameter",
            'optimizer.add_param_group({"params": [p]})  # or make it of the model that is trained',
        )  # fmt: skip
    scaled = [look for look in looks if look.scale != 1.0 and not look.equal and _limits(hook)]
    if scaled:
        peak, scale = scaled[-1].peaks[0], scaled[-1].scale
        yield said(
            hook, "TH309", f"the loss was multiplied by {scale:g}: it saw up to {peak:.4g} where the gradient was "
            f"{peak / scale:.4g}",
            f'th.hook(model, th.clip_value({scaled[-1].peaks[1]:.4g}), on="{hook.owner.name}", at="grad_final", '
            "optimizer=optimizer)",
        )  # fmt: skip


def _same_mask(hook: HookRecord) -> bool:
    """Whether it made the same elements zero each time; what drops others each time holds none."""
    masks = [look.zeroed for look in hook.looks if look.zeroed is not None]
    return not any(look.returned for look in hook.looks) or all(torch.equal(masks[0], mask) for mask in masks)


def _limits(hook: HookRecord) -> bool:
    return hook.reading is not None and hook.reading.limits


def _taken_out_again(hook: HookRecord) -> Iterator[Finding]:
    """A plain factor, which clipping by the norm or the optimizer takes out."""
    factors = [look.factor for look in hook.looks if look.factor is not None and not look.equal]
    constant = (
        bool(factors) and len(factors) == len(hook.looks) and max(factors) - min(factors) <= 1e-4 * abs(factors[0])
    )
    if not constant or _limits(hook) or factors[0] <= 0:
        return
    clips = [factor for factor, alike in hook.clipped if alike]
    if hook.clipped and len(clips) == len(hook.clipped) and max(clips) < 1:
        yield said(
            hook, "TH306", f"every gradient was multiplied by {factors[0]:.4g}; clip_grad_norm_ then multiplied all of "
            f"them by {clips[-1]:.4g}, to the norm that they have without",
            "clip_grad_norm_(model.parameters(), max_norm)\nfor p in chosen:\n    p.grad.mul_(factor)  # after it",
        )  # fmt: skip
    elif hook.reached and hook.optimizers and hook.optimizers <= SCALE_FREE:
        name = min(hook.optimizers)
        yield said(
            hook, "TH305",
            f"{len(factors)} of {len(hook.looks)} gradients were multiplied by {factors[0]:.4g}; {name} divides each "
            "by a running size of itself, and the factor falls out",
            f'chosen = {{"params": [p], "lr": lr * factor}}  # the learning rate is what scales a step\n'
            f'optimizer = torch.optim.{name}([{{"params": rest}}, chosen], lr=lr)',
        )  # fmt: skip


def _counts_sums(hook: HookRecord) -> bool:
    """Whether the sum it was added to was used: a step was taken with it, or none ever is."""
    return bool(hook.summed if hook.reached else hook.accumulating)


def at_the_wrong_moment(hook: HookRecord) -> Iterator[Finding]:
    if not hook.fired:
        return
    if hook.graphs == {True, False} and hook.changed:
        yield said(
            hook, "TH406", f"it changed {many(hook.changed, 'gradient')}, in passes with create_graph=True and without",
            "handle = w.register_hook(fn)\n(g,) = torch.autograd.grad(loss, w, create_graph=True)\n"
            "handle.remove()\ng.sum().backward()",
        )  # fmt: skip
    elif _counts_sums(hook) and hook.changed and hook.owner.leaf and _is_no_factor(hook):
        peak = max((look.peaks[1] for look in hook.looks), default=0.0)
        yield said(
            hook, "TH401",
            f"{hook.accumulating} of {hook.fired} firings met a .grad that was there already; each returned at most "
            f"{peak:.4g}, their sum may be more",
            f'th.hook(model, th.clip_value({peak:.4g}), on="{hook.owner.name}", at="grad_final", optimizer=optimizer)',
        )  # fmt: skip
    if hook.kind in BACKWARD and hook.most_in_backward > 1:
        yield said(
            hook, "TH402", f"it fired up to {many(hook.most_in_backward, 'time')} in one backward, once for each call",
            f'th.hook(model, lambda g, ctx: ..., on="{hook.owner.name}", at="grad_output")  # ctx.call says which',
        )  # fmt: skip
    if hook.recomputed and not hook.returned:
        yield said(
            hook, "TH404", f"{hook.recomputed} of {hook.fired} firings were in a recomputation",
            f'th.hook(model, th.stats(), on="{hook.owner.name}", at="output")  # observes each call once',
        )  # fmt: skip
    if hook.without_input:
        yield said(
            hook, "TH407", f"grad_input was None in {hook.without_input} of {hook.fired} firings",
            f'th.hook(model, fn, on="{hook.below}", at="grad_accumulated")  # fn(grad), when it is there',
        )  # fmt: skip
    if hook.rebased:
        yield said(
            hook, "TH408", "the gradient it got is that of the value before the operation in place",
            "y = y * 2            # not y.mul_(2)\ny.register_hook(fn)  # or register after the operation",
        )  # fmt: skip
    if hook.copies_fired:
        yield said(
            hook, "TH108", f"fired {many(hook.fired, 'time')}, and on copies {many(hook.copies_fired, 'time')} more",
            "copied = copy.deepcopy(model)  # before hooks are put on", lightly=True,
        )  # fmt: skip
    if hook.late_firings and hook.kind in BACKWARD:
        yield said(
            hook, "TH410", f"{many(hook.late_firings, 'firing')} after handle.remove(): the forward had taken it along",
            "loss.backward()\nhandle.remove()",
        )  # fmt: skip


def _is_no_factor(hook: HookRecord) -> bool:
    """Whether the sum of what it returns is another than what it returns of the sum. A mask is none such."""
    return _limits(hook)


def elsewhere(hook: HookRecord) -> Iterator[Finding]:
    """A module's backward hook that changes what goes to the layers before."""
    module = hook.owner.now()
    if hook.kind == BACKWARD[1] and hook.changed and isinstance(module, nn.Module) and (own := _own_parameters(module)):
        yield said(
            hook, "TH303",
            f"{hook.changed} of {hook.fired} firings returned another grad_input: it goes to the layers before; the "
            f"gradients of {', '.join(own)} are made of grad_output, and stay",
            f'th.hook(model, fn, on="{hook.below}", at="grad")        # fn(grad): those of its parameters\n'
            f'th.hook(model, fn, on="{hook.below}", at="grad_final")  # those that the optimizer uses',
        )  # fmt: skip


def _own_parameters(module: nn.Module) -> list[str]:
    return [key for key, p in private.own_parameters(module).items() if p is not None and p.requires_grad]


def repeated(exam: Recording) -> Iterator[Finding]:
    """The same function more than once on one target."""
    told: set[int] = set()
    for hooks in sorted(_alike(exam), key=len, reverse=True):
        if len(hooks) < 2 or any(h.number in told for h in hooks):
            continue
        told |= {h.number for h in hooks}
        first, times = hooks[0], f"registered {many(len(hooks), 'time')} on {hooks[0].owner.name!r}"
        moments = len({h.born.backwards for h in hooks})
        if moments <= 2 and first.bound and len({h.identity[0] for h in hooks}) > 1:
            continue
        if moments > 2:
            yield said(
                first, "TH409", f"{times}, in {many(moments, 'step')}; each of them runs every time",
                f"handle = target.{first.kind}(fn)  # once, before the loop",
            )  # fmt: skip
        elif others := [name for name in _names_of(first) if name != first.owner.name]:
            yield said(
                first, "TH405", f"{times}, which is also called {others[0]!r}: what it does is done twice",
                "for name, p in model.named_parameters():  # names what is tied once\n    p.register_hook(fn)",
            )  # fmt: skip
        else:
            yield said(
                first, "TH403", f"{times}: what it does is done {many(len(hooks), 'time')}",
                f"handle.remove()  # the old one first\nhandle = target.{first.kind}(fn)",
            )  # fmt: skip


def _alike(exam: Recording) -> list[list[HookRecord]]:
    """Hooks of one target, by their function; and those of one line, by its code."""
    groups: dict[tuple[object, ...], list[HookRecord]] = {}
    for hook in exam.hooks:
        now = hook.owner.now()
        if hook.foreign or hook.removed is not None or not hook.alive or now is None:
            continue
        function, code = hook.identity
        groups.setdefault((id(now), hook.kind, function), []).append(hook)
        if code:
            groups.setdefault((id(now), hook.kind, code, hook.caller.place), []).append(hook)
    return list(groups.values())


def _names_of(hook: HookRecord) -> list[str]:
    root = hook.owner.place.root() if hook.owner.place is not None else None
    now = hook.owner.now()
    if root is None or now is None:
        return []
    if isinstance(now, Tensor):
        return [name for name, one in root.named_parameters(remove_duplicate=False) if one is now]
    return [name for name, one in root.named_modules(remove_duplicate=False) if one is now]
