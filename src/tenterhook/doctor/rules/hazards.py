"""What will hurt later: leaks, edits in place, graphs that are never freed, other people's hooks."""

from __future__ import annotations

from collections.abc import Iterator

from tenterhook import torch_internals as private
from tenterhook.doctor.findings import Finding, finding, many
from tenterhook.doctor.observe.hook_record import BACKWARD, FORWARD, TENSOR, HookRecord, said
from tenterhook.doctor.observe.source import evaluations
from tenterhook.doctor.patch.recording import Recording

#: backwards that kept their graph, or values that were kept, before it counts as a habit
HABIT = 3


def dangers(hook: HookRecord) -> Iterator[Finding]:
    if hook.in_place and hook.kind in (TENSOR[0], *BACKWARD):
        given = hook.reading.arguments[-1] if hook.reading is not None and hook.reading.arguments else "grad"
        yield said(
            hook, "TH501",
            f"{hook.in_place} of {hook.fired} firings changed the gradient they were given; another part of the graph "
            "may be using the same memory",
            f"return {given} * 2  # a new tensor, not {given}.mul_(2)",
        )  # fmt: skip
    if hook.recomputed_without:
        yield said(
            hook, "TH509",
            f"it changed {many(hook.returned, 'forward')} and was removed; "
            f"{many(hook.recomputed_without, 'checkpoint')} ran again without it, for gradients of another forward",
            "loss.backward()\nhandle.remove()  # after the backward, which runs the forward again",
        )  # fmt: skip
    over = [ref for ref, version in hook.aliased if (grad := ref()) is not None and private.version(grad) != version]
    if over:
        yield said(
            hook, "TH506", f"{len(over)} of the gradients that it kept have changed since",
            "kept.append(p.grad.detach().clone())",
        )  # fmt: skip
    if hook.reading is not None and hook.reading.waits and hook.fired:
        yield said(
            hook, "TH505", f"it fired {many(hook.fired, 'time')}, and calls .{'(), .'.join(hook.reading.waits)}()",
            "values.append(x.detach().norm())        # stays on the device\n"
            "numbers = torch.stack(values).tolist()  # once a step",
        )  # fmt: skip
    if hook.kind == "register_backward_hook":
        yield said(
            hook, "TH601",
            f"it fired {many(hook.fired, 'time')} with the gradients of the last operation inside the module, not of "
            "the module's inputs",
            "module.register_full_backward_hook(fn)\n"
            f'th.hook(model, fn, on="{hook.owner.name}", at="grad_input")  # or, with fn(grad)',
        )  # fmt: skip
    if hook.overwrote:
        yield said(
            hook, "TH606", f"its number was that of a hook which came with the loaded model; {hook.owner.name!r} has "
            "lost that one",
            "model.load_state_dict(torch.load(path))  # weights alone; then register every hook anew",
        )  # fmt: skip
    elif hook.taken_off and hook.kind in (*TENSOR, *FORWARD, *BACKWARD):
        yield said(
            hook, "TH605", f"it fired {many(hook.fired, 'time')}, and is gone; its handle was not asked to remove it",
            "handle.remove()  # one's own alone; not module._forward_hooks.clear()",
        )  # fmt: skip


def leaks(exam: Recording) -> Iterator[Finding]:
    """What stays alive because of hooks: by the line that registers them."""
    groups: dict[str, list[HookRecord]] = {}
    for hook in exam.hooks:
        groups.setdefault(hook.caller.place, []).append(hook)
    leaked = {id(h.owner.now()) for h in exam.hooks if h.holder is not None}
    for hooks in groups.values():
        shown = [one for h in hooks for one in h.kept]
        kept = [moment for moment, ref in shown if (value := ref()) is not None and id(value) not in leaked]
        if len({moment.backwards for moment in kept}) >= HABIT:
            yield said(
                hooks[0], "TH503", f"{len(kept)} of {len(shown)} values it was shown are alive still, and their graphs",
                "kept.append(value.detach())",
            )  # fmt: skip
        holding = [h for h in hooks if h.holder is not None]
        alive = [h for h in holding if h.owner.now() is not None]
        if alive:
            first = alive[0]
            yield said(
                first, "TH502", f"it holds the tensor as {first.holder!r}; {len(alive)} of {len(holding)} tensors of "
                "this line are alive after a collection, each with its graph",
                f"value = {first.holder}.detach()\n{first.holder}.register_hook(lambda grad: ...)  # with value inside",
            )  # fmt: skip


def loaded_handles(exam: Recording) -> Iterator[Finding]:
    for place in dict.fromkeys(exam.loaded_handles):
        yield finding(
            "TH107", "a RemovableHandle was loaded; it points at a dict that is no model's",
            'torch.save({"hooks": rig.state_dict()}, path)\nrig = th.restore(model, torch.load(path)["hooks"])',
            place=place,
        )  # fmt: skip


def habits(exam: Recording) -> Iterator[Finding]:
    """What is wrong with the program rather than with one hook."""
    course = exam.course
    if course.retained >= HABIT and course.retained == course.timeline.backwards:
        yield finding(
            "TH504", f"{course.retained} of {course.timeline.backwards} backwards kept their graph, and none freed it",
            "loss.backward()  # retain_graph=True only where the same graph is run once more",
            place=course.retained_at,
        )  # fmt: skip
    if course.steps_inside and course.empty_clips:
        yield finding(
            "TH411", f"{many(course.steps_inside, 'step')} ran inside a backward; clipping found 0 gradients, "
            f"{many(len(course.empty_clips), 'time')}",
            "clip_grad_norm_([p], 1.0)  # in the hook, before its step; or step after the backward:\n"
            "loss.backward()\nclip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()",
            place=course.empty_clips[0],
        )  # fmt: skip
    for kind, by in exam.everywhere:
        yield finding(
            "TH602", f"{kind} hooks every module of the process, also those of libraries",
            f"for m in model.modules():\n    m.{kind.replace('module_', '')}(fn)", place=by.place,
        )  # fmt: skip
    for path in sorted(exam.files):
        for line in evaluations(path):
            yield finding(
                "TH603", "the text comes from elsewhere, and what it says is run",
                'th.hook(model, fn, on="type:Linear", at="output")  # compares names, imports nothing',
                place=f"{path}:{line}",
            )  # fmt: skip
