"""Rules about torch.compile: hooks that compiled code misses, drops or is compiled again for."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from tenterhook.doctor.findings import Finding, finding, many
from tenterhook.doctor.observe.hook_record import BACKWARD, FULL, LOOKS, HookRecord, said
from tenterhook.doctor.patch.compiler import Compiler, Recompiled
from tenterhook.doctor.patch.recording import Recording

#: recompilations for one hook before it counts as one at each call; a flag that is on or off takes two
HABIT = 3


def of_compiled(hook: HookRecord, exam: Recording) -> Iterator[Finding]:
    compiler, number = exam.course.compiler, hook.number
    if without := compiler.without(hook):
        more = " or more" if without == LOOKS else ""
        yield said(
            hook, "TH224", f"{many(without, 'backward')}{more} ran through code that was compiled before it "
            "came; then something else had the code made anew, and that has it",
            f"{_at(hook)}.{hook.kind}(fn)\ntorch._dynamo.reset()         # forget the code that was made without it\n"
            "model = torch.compile(model)",
        )  # fmt: skip
    if names := compiler.left_out.get(number):
        yield said(
            hook, "TH225", f"it calls {names[0]}, which says that it changes nothing, and whose result nobody uses: "
            "the compiler left it out",
            '@torch.library.custom_op("my::look", mutates_args=("seen",))  # it writes to a tensor\n'
            "def look(value: Tensor, seen: Tensor) -> None:\n    seen.add_(value.norm())",
        )  # fmt: skip
    if exam.failure is None:
        yield from _recompiled(hook, compiler)
        yield from _broken(hook, exam)


def _at(hook: HookRecord) -> str:
    return "model" if hook.owner.name == "." else f'model.get_submodule("{hook.owner.name}")'


def _recompiled(hook: HookRecord, compiler: Compiler) -> Iterator[Finding]:
    again = compiler.recompiled.get(hook.number, [])
    if len(again) < HABIT:
        return
    refused = any(one.refused for one in again)
    if again[-1].alone:
        yield said(
            hook, "TH518", f"it is outside of the graph, and a frame of its own: {_times(again)}"
            + ("; then the compiler gave it up" if refused else ""), _DISABLED.format(_at(hook), hook.kind),
            lightly=not refused,
        )  # fmt: skip
    else:
        yield said(
            hook, "TH515", _times(again) + ("; then the compiler gave up, and it runs uncompiled" if refused else ""),
            _IN_A_TENSOR, lightly=not refused,
        )  # fmt: skip


def _times(again: list[Recompiled]) -> str:
    last, made = again[-1], sum(not one.refused for one in again)
    return f"{last.frame!r} was compiled {many(made, 'time')} more: {last.place} changes what it was made for"


_DISABLED = "{}.{}(torch.compiler.disable(fn))  # runs as it is; there is no graph around it to break"


_IN_A_TENSOR = (
    'module.register_buffer("seen", torch.zeros(()))  # a tensor\n'
    "def fn(module, args, output):\n    module.seen.add_(output.detach().norm())  # not a list, not a number of Python"
)


def _broken(hook: HookRecord, exam: Recording) -> Iterator[Finding]:
    compiler, module = exam.course.compiler, hook.owner.now()
    reasons = compiler.breaks.get(hook.number, [])
    if hook.kind in FULL and isinstance(module, nn.Module) and hook.calls is not None and hook.calls.count:
        inside = exam.course.compiler.runs(module) and module not in exam.course.compiler.models
        reasons = ["backward hooks of modules do not go into a graph"] * (inside and compiler.breaks_for_backward)
    if reasons:
        asked = "compiler.disable" in reasons[0]
        yield said(
            hook, "TH516", f"{many(len(reasons), 'graph break')}: {reasons[0]}",
            f'th.hook(model, fn, on="{hook.below}", at="grad")  # on parameters: they stay outside of the graph'
            if hook.kind in BACKWARD else _IN_A_TENSOR,
            lightly=asked,
        )  # fmt: skip


def limit_reached(exam: Recording) -> Iterator[Finding]:
    """The program ended because code was compiled too often."""
    compiler = exam.course.compiler
    compiler.collect()
    for hook in exam.hooks:
        again = compiler.recompiled.get(hook.number, [])
        if len(again) >= HABIT:
            yield said(
                hook, "TH517", f"{_times(again)}; that is the limit, and with fullgraph=True it may not run uncompiled",
                _DISABLED.format(_at(hook), hook.kind) if again[-1].alone else _IN_A_TENSOR,
            )  # fmt: skip
            return


def of_the_program(exam: Recording) -> Iterator[Finding]:
    for one in exam.course.compiler.emptied:
        yield finding(
            "TH226", f"retain_grad() on a {one.name} that compiled code gave: a backward went through that code, and "
            ".grad is None", _HOOK_INSIDE, target=one.name, by="retain_grad", place=one.caller.place,
            lightly=not one.caller.users,
        )  # fmt: skip
    for number in sorted(exam.fired_around):
        kind, by = exam.everywhere[number]
        if kind.startswith("register_module_forward"):
            yield finding(
                "TH413", "torch.compile(model) gave an OptimizedModule, which is called around the model: it fires for "
                f"both ({exam.wrapped_calls[0]})",
                "model.compile()  # in place of model = torch.compile(model): no module around it",
                by=kind, target="OptimizedModule", place=by.place, lightly=not by.users,
            )  # fmt: skip


_HOOK_INSIDE = (
    "def fn(module, args, output):  # a forward hook, registered before the model is compiled\n"
    "    output.register_hook(lambda grad: grad * 0.5)  # inside of the compiled code\n"
    'th.hook(model, fn, on="layer.*", at="grad")  # or the gradients of parameters, after it'
)


def given_none(hook: HookRecord) -> Finding:
    """A tensor hook on what compiled code gave."""
    return said(
        hook, "TH226", f"{many(hook.fired, 'firing')}, each with None: the tensor came out of compiled code, and the "
        "backward of that is one node which gives nothing for it", _HOOK_INSIDE,
    )  # fmt: skip
