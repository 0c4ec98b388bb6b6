"""Rules about torch.compile: hooks that compiled code misses, drops or is compiled again for."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_record import BACKWARD, FULL, SAMPLES, HookRecord
from tenterhook.doctor.patch.compiler import Recompiled
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.never_fired import compile_again, expression_of
from tenterhook.doctor.rules.registry import Subject, Words, found, plural, rule
from tenterhook.rig.compiled.graph_cache import Cost

#: recompilations for one hook before it counts as one at each call; a flag that is on or off takes two
HABIT = 3

FIRST = "rig = th.attach(model, plan, optimizer=optimizer)  # before the first call: nothing is compiled twice"
IN_A_TENSOR = (
    'module.register_buffer("seen", torch.zeros(()))  # a tensor\n'
    "def fn(module, args, output):\n    module.seen.add_(output.detach().norm())  # not a list, not a number of Python"
)
HOOK_INSIDE = (
    "def fn(module, args, output):  # a forward hook, registered before the model is compiled\n"
    "    output.register_hook(lambda grad: grad * 0.5)  # inside of the compiled code\n"
    'th.hook(model, fn, on="layer.*", at="grad")  # or the gradients of parameters, after it'
)


@rule("TH112")
def cost_of_a_hook(about: Subject, cost: Cost | None = None, dropped: int = 0) -> Words | None:
    """Say what a hook would cost in a compiled model, or how many graphs a rig's hooks made void."""
    if cost is None:
        were = "graph that was" if dropped == 1 else "graphs that were"
        return Words(f"{dropped} {were} compiled without its hooks had to be compiled again", FIRST)
    if not cost:
        return None
    evidence = f"compiled code calls {cost.callbacks} of its targets: a door each, and no graph break"
    if not cost.callbacks:
        evidence = "it comes on modules that compiled code calls"
    evidence += "; what passes is copied each time" if cost.copies else ""
    having, alike = cost.among
    if having < alike:
        evidence += (
            f"; {having} of {alike} compiled modules of one class have it, and are compiled apart from the others"
        )
    if not cost.dropped:
        return Words(evidence, "# nothing to do: nothing is compiled again when it is muted, or due in some steps only")
    void = f"{plural(cost.dropped, 'graph')} without it will be dropped, and compiled again when next called"
    return Words(f"{evidence}; {void}", FIRST)


@rule("TH224")
def compiled_without_it(hook: HookRecord, seen: Recording) -> Words | None:
    without = seen.events.compiler.without(hook)
    if not without:
        return None
    more = " or more" if without == SAMPLES else ""
    return Words(
        f"{plural(without, 'backward')}{more} ran through code that was compiled before it "
        "came; then something else had the code made anew, and that has it",
        compile_again(hook),
    )


@rule("TH225")
def operation_left_out(hook: HookRecord, seen: Recording) -> Words | None:
    names = seen.events.compiler.left_out.get(hook.number)
    if not names:
        return None
    return Words(
        f"it calls {names[0]}, which says that it changes nothing, and whose result nobody uses: "
        "the compiler left it out",
        '@torch.library.custom_op("my::look", mutates_args=("seen",))  # it writes to a tensor\n'
        "def look(value: Tensor, seen: Tensor) -> None:\n    seen.add_(value.norm())",
    )


@rule("TH226")
def gradient_not_kept(about: HookRecord | Subject) -> Words:
    """Explain a tensor that compiled code gave: a hook on it gets None, and retain_grad() keeps nothing."""
    if isinstance(about, Subject):
        return Words(
            f"retain_grad() on a {about.target} that compiled code gave: a backward went through that code, and "
            ".grad is None",
            HOOK_INSIDE,
        )
    return Words(
        f"{plural(about.fired, 'firing')}, each with None: the tensor came out of compiled code, and the "
        "backward of that is one node which gives nothing for it",
        HOOK_INSIDE,
    )


@rule("TH413")
def fires_around_the_model(about: Subject, call: str) -> Words:
    return Words(
        f"torch.compile(model) gave an OptimizedModule, which is called around the model: it fires for both ({call})",
        "model.compile()  # in place of model = torch.compile(model): no module around it",
    )


@rule("TH515")
def compiled_again_and_again(hook: HookRecord, seen: Recording) -> Words | None:
    again = _recompiled(hook, seen)
    if not again or again[-1].alone:
        return None
    refused = any(one.refused for one in again)
    return Words(
        _times(again) + ("; then the compiler gave up, and it runs uncompiled" if refused else ""),
        IN_A_TENSOR,
        as_note=not refused,
    )


@rule("TH516")
def breaks_the_graph(hook: HookRecord, seen: Recording) -> Words | None:
    compiler, module = seen.events.compiler, hook.owner.now()
    reasons = compiler.breaks.get(hook.number, [])
    if hook.kind in FULL and isinstance(module, nn.Module) and hook.calls is not None and hook.calls.count:
        inside = compiler.runs(module) and module not in compiler.models
        reasons = ["backward hooks of modules do not go into a graph"] * (inside and compiler.breaks_for_backward)
    if not reasons:
        return None
    return Words(
        f"{plural(len(reasons), 'graph break')}: {reasons[0]}",
        f'th.hook(model, fn, on="{hook.below}", at="grad")  # on parameters: they stay outside of the graph'
        if hook.kind in BACKWARD
        else IN_A_TENSOR,
        as_note="compiler.disable" in reasons[0],
    )


@rule("TH517")
def recompilations_used_up(hook: HookRecord, seen: Recording) -> Words | None:
    again = _recompiled(hook, seen)
    if not again:
        return None
    return Words(
        f"{_times(again)}; that is the limit, and with fullgraph=True it may not run uncompiled",
        _disabled(hook) if again[-1].alone else IN_A_TENSOR,
    )


@rule("TH518")
def compiled_by_itself(hook: HookRecord, seen: Recording) -> Words | None:
    again = _recompiled(hook, seen)
    if not again or not again[-1].alone:
        return None
    refused = any(one.refused for one in again)
    return Words(
        f"it is outside of the graph, and a frame of its own: {_times(again)}"
        + ("; then the compiler gave it up" if refused else ""),
        _disabled(hook),
        as_note=not refused,
    )


def _recompiled(hook: HookRecord, seen: Recording) -> list[Recompiled]:
    """Return the recompilations for a hook, if they are a habit."""
    again = seen.events.compiler.recompiled.get(hook.number, [])
    return again if len(again) >= HABIT else []


def _times(again: list[Recompiled]) -> str:
    last, made = again[-1], sum(not one.refused for one in again)
    return f"{last.frame!r} was compiled {plural(made, 'time')} more: {last.place} changes what it was made for"


def _disabled(hook: HookRecord) -> str:
    tail = "(torch.compiler.disable(fn))  # runs as it is; there is no graph around it to break"
    return f"{expression_of(hook)}.{hook.kind}{tail}"


def limit_reached(seen: Recording) -> Iterator[Finding]:
    """Explain a program that ended because code was compiled too often."""
    seen.events.compiler.collect()
    yield from list(found(*(recompilations_used_up(hook, seen) for hook in seen.hooks)))[:1]


def of_the_program(seen: Recording) -> Iterator[Finding]:
    """Find what is wrong with a compiled program rather than with one hook."""
    for one in seen.events.compiler.emptied:
        about = Subject(target=one.name, by="retain_grad", place=one.caller.place, minor=not one.caller.users)
        yield from found(gradient_not_kept(about))
    for number in sorted(seen.fired_around):
        kind, by = seen.everywhere[number]
        if kind.startswith("register_module_forward"):
            about = Subject(target="OptimizedModule", by=kind, place=by.place, minor=not by.users)
            yield from found(fires_around_the_model(about, seen.wrapped_calls[0]))
