"""Why a hook never fired."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from tenterhook.doctor.findings import Finding, many
from tenterhook.doctor.observe.hook_record import BACKWARD, FORWARD, FULL, STEP, TENSOR, Calls, HookRecord, said
from tenterhook.doctor.patch.compiler import COMPILED_NODE
from tenterhook.doctor.patch.proxy import traced
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.compiled import given_none
from tenterhook.doctor.rules.distributed import of_a_shard, sharded_since

#: a line that hooks many things may hook some that this run does not need
_OF_ONE_AMONG_MANY = ("TH201", "TH202", "TH203", "TH207", "TH211", "TH213", "TH217")


def why_silent(hook: HookRecord, exam: Recording) -> Finding | None:
    found = _why(hook, exam)
    if found is not None and found.code in _OF_ONE_AMONG_MANY and _siblings_fired(hook, exam):
        return replace(found, severity="note")
    return found


def _why(hook: HookRecord, exam: Recording) -> Finding | None:
    if hook.fired and hook.fired == hook.nones:
        return given_none(hook) if hook.owner.made_by == COMPILED_NODE else _none(hook)
    if hook.fired or hook.raised or _traced(hook, exam) or hook.overwrote or hook.taken_off:
        return None
    for kinds, why in ((TENSOR, _tensor), (FORWARD, _forward), (BACKWARD, _backward), (STEP, _step)):
        if hook.kind in kinds:
            return why(hook, exam)
    return None


def _traced(hook: HookRecord, exam: Recording) -> bool:
    """Whether it went into compiled code, or another of its function did: modules of one class share that code."""
    alike = (h for h in exam.hooks if h.code is hook.code and h.kind == hook.kind) if hook.code is not None else (hook,)
    return any(h.serial in traced for h in alike)


def _no_backward(hook: HookRecord, exam: Recording) -> Finding | None:
    """Nothing that could have fired it ran while it was there."""
    ran = exam.course.timeline.backwards
    until = hook.removed.backwards if hook.removed is not None else ran
    if until > hook.born.backwards:
        return None
    if hook.removed is not None:
        if ran == until:
            return None
        return said(
            hook, "TH211", f"removed after {many(until, 'backward')}, and {ran - until} ran after that",
            "loss.backward()\nhandle.remove()  # after the backward, not before it",
        )  # fmt: skip
    if hook.born.backwards:
        return said(
            hook, "TH201", f"{many(hook.born.backwards, 'backward')} ran before it was registered, none since",
            "handle = y.register_hook(fn)  # first\nloss.backward()                # then",
        )  # fmt: skip
    return said(
        hook, "TH214", "0 backwards ran",
        "loss = criterion(model(x), y)\nloss.backward()  # on what requires grad, outside torch.no_grad()",
    )  # fmt: skip


def _tensor(hook: HookRecord, exam: Recording) -> Finding | None:
    found = _no_backward(hook, exam)
    if found is not None or not hook.meetings:
        return found
    owner, course, last = hook.owner, exam.course, hook.meetings[-1]
    times = f"{many(len(hook.meetings), 'backward')} ran"
    by_name = f'th.hook(model, fn, on="{owner.name}", at="grad")  # by name: it finds what stands there'
    if last.frozen:
        return said(
            hook, "TH203", f"{times}, with requires_grad=False on it",
            f'model.get_parameter("{owner.name}").requires_grad_(True)  # before the forward'
            if owner.is_parameter
            else "x.requires_grad_(True)  # before the forward",
        )  # fmt: skip
    if owner.group is not None and not last.replaced and (found := of_a_shard(hook)) is not None:
        return found
    if course.blind_checkpoints and not last.inside:
        return _blind(hook, course.blind_checkpoints[0])
    if hook.calls is not None and hook.calls.count and hook.calls.without_grad == hook.calls.count:
        return _without_grad(hook, hook.calls)
    if last.other is not None:
        return _another(hook, last.other)
    if owner.id in course.functional:
        return said(
            hook, "TH220", f"{times}, none with this parameter: functional_call put other tensors in its place",
            "params[name].register_hook(fn)  # on the tensors that are passed\n"
            "torch.func.functional_call(model, params, args)",
        )  # fmt: skip
    if last.sharded:
        return sharded_since(hook)
    if last.replaced:
        return said(
            hook, "TH205", f"{times}; another parameter object stands at {owner.name!r} now, without the hook", by_name
        )
    if last.inside and last.backward != "backward":
        accumulated = hook.kind == TENSOR[1]
        return said(
            hook, "TH210",
            f"{times}, the last by {last.backward}, which " + ("fills no .grad" if accumulated else "left it out"),
            "loss.backward()" + ("" if accumulated else "  # without inputs=, or with this tensor among them"),
        )  # fmt: skip
    if last.inside:
        return _none(hook)
    if not hook.meetings[0].alive:
        return said(
            hook, "TH217", f"{times}; the tensor was let go before the first of them, and the loss did not need it",
            "y = f(x)\ny.register_hook(fn)\nloss = g(y)  # the loss has to come from this very y",
        )  # fmt: skip
    if owner.is_parameter:
        return said(
            hook, "TH202", f"{times}; the loss of none depends on it: its module was not used, or without grad",
            "h = self.encoder(x)  # in the forward: used for the loss, not inside torch.no_grad(), not detached",
        )  # fmt: skip
    return said(
        hook, "TH202", f"{times}; the loss of none depends on it"
        + (f" (it comes from {owner.made_by})" if owner.made_by else ""),
        "y = f(x)\ny.register_hook(fn)\nloss = g(y)  # the loss has to come from y, not from what y was made of",
    )  # fmt: skip


def _none(hook: HookRecord) -> Finding:
    return said(
        hook, "TH216", f"{many(hook.fired, 'firing')}, {hook.nones} of them with None: what uses it gives no gradient",
        "# in the custom Function's backward: return a gradient for this input, not None\n"
        "# or hook what the gradient does flow through",
    )  # fmt: skip


def _without_grad(hook: HookRecord, calls: Calls) -> Finding:
    return said(
        hook, "TH204", f"{many(calls.count, 'call')} of the module, all under torch.no_grad()",
        "out = model(x)  # not inside torch.no_grad() or inference_mode()",
    )  # fmt: skip


def _another(hook: HookRecord, model: str) -> Finding:
    if hook.copies_fired:
        return said(
            hook, "TH108", f"a copy of the {model} ran: its hook fired {many(hook.copies_fired, 'time')}, this one 0",
            "copied = copy.deepcopy(model)  # before hooks are put on\n"
            f'copied.get_submodule("{hook.owner.name}").{hook.kind}(fn)',
        )  # fmt: skip
    point = "grad" if hook.kind in TENSOR else "output" if hook.kind in FORWARD else "grad_output"
    return said(
        hook, "TH206", f"the loss came from another {model} object; of this one no parameter was in the graph",
        f'th.hook(model, fn, on="{hook.owner.name}", at="{point}")  # model: the object whose loss it is',
    )  # fmt: skip


def _blind(hook: HookRecord, place: str) -> Finding:
    return said(
        hook, "TH218", f"the checkpoint at {place} got no input that requires grad",
        "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
    )  # fmt: skip


def _forward(hook: HookRecord, exam: Recording) -> Finding | None:
    module, course = hook.owner.now(), exam.course
    if not isinstance(module, nn.Module):
        return None
    if hook.removed is not None:
        if course.timeline.now().sequence == hook.removed.sequence:
            return None
        return said(
            hook, "TH211", "removed before the module was called",
            "out = model(x)\nhandle.remove()  # after the forward, not before it",
        )  # fmt: skip
    last = hook.meetings[-1] if hook.meetings else None
    if last is not None and last.other is not None:
        return _another(hook, last.other)
    if hook.copies_fired:
        return _another(hook, hook.owner.place.model.__name__ if hook.owner.place is not None else "model")
    if exam.course.compiler.runs(module) and hook.number in exam.course.compiler.late:
        return _compiled(hook)
    if last is not None and last.late and len(hook.meetings) == 1:
        return _late(hook)
    if last is not None and last.used:
        return _uncalled(hook)
    return _never_called(hook)


def _backward(hook: HookRecord, exam: Recording) -> Finding | None:
    found = _no_backward(hook, exam)
    if found is not None or not hook.meetings:
        return found
    module, last = hook.owner.now(), hook.meetings[-1]
    if last.other is not None:
        return _another(hook, last.other)
    if not isinstance(module, nn.Module):
        return None
    if exam.course.compiler.runs(module) and hook.number in exam.course.compiler.late:
        return _compiled(hook)
    calls = hook.calls or Calls()
    if not calls.count and hook.kind in FULL:
        if last.late and len(hook.meetings) == 1:
            return _late(hook)
        return _uncalled(hook) if last.used else _never_called(hook)
    if exam.course.blind_checkpoints:
        return _blind(hook, exam.course.blind_checkpoints[0])
    if calls.count and calls.without_grad == calls.count:
        return _without_grad(hook, calls)
    if calls.odd is not None:
        return said(
            hook, "TH208", f"{many(calls.count, 'call')}; it returns a {calls.odd}, where PyTorch looks for no tensors",
            f'th.hook(model, fn, on="{hook.owner.name}", at="grad_output")  # each tensor of any output',
        )  # fmt: skip
    if last.backward != "backward":
        return said(
            hook, "TH210", f"the backward was {last.backward}: it runs only what leads to the tensors it was asked for",
            "loss.backward()",
        )  # fmt: skip
    return said(
        hook, "TH202", "the loss depends on nothing that it returned"
        + (f" in {many(calls.count, 'call')}" if calls.count else ""),
        "loss = criterion(model(x), y)  # from what the module returned, not detached",
    )  # fmt: skip


def _late(hook: HookRecord) -> Finding:
    return said(
        hook, "TH201", "the module had run forward before it was registered, and was not called since",
        f"handle = module.{hook.kind}(fn)  # first\nout = module(x)                # then",
    )  # fmt: skip


def _siblings_fired(hook: HookRecord, exam: Recording) -> bool:
    return any(h.fired for h in exam.hooks if h.caller.place == hook.caller.place and h.kind == hook.kind)


def _uncalled(hook: HookRecord) -> Finding:
    return said(
        hook, "TH207", f"0 calls in {many(len(hook.meetings), 'backward')} that used its parameters: "
        "somebody calls .forward() or uses its weights directly",
        "out = module(x)  # not module.forward(x)\n"
        f'th.hook(model, fn, on="{hook.below}", at="grad")  # or hook what is used',
    )  # fmt: skip


def _never_called(hook: HookRecord) -> Finding:
    return said(
        hook, "TH213", f"0 calls of this {hook.owner.kind}",
        f"x = self.{hook.owner.name}(x)  # in the forward of the model; or hook a module that runs",
        lightly=isinstance(hook.owner.now(), nn.ModuleList | nn.ModuleDict),
    )  # fmt: skip


def _compiled(hook: HookRecord) -> Finding:
    at = "model" if hook.owner.name == "." else f'model.get_submodule("{hook.owner.name}")'
    return said(
        hook, "TH209", "the model runs as compiled code that was made without the hook",
        f"{at}.{hook.kind}(fn)\ntorch._dynamo.reset()         # forget the code that was made without it\n"
        "model = torch.compile(model)",
    )  # fmt: skip


def _step(hook: HookRecord, exam: Recording) -> Finding | None:
    course = exam.course
    if course.skipped_steps:
        return said(
            hook, "TH212", f"GradScaler skipped {many(course.skipped_steps, 'step')}: gradients were not finite",
            "scaler.step(optimizer)  # calls optimizer.step() only if every gradient is finite\n"
            "scaler.update()         # lowers the scale, so that the next one is",
        )  # fmt: skip
    return None
