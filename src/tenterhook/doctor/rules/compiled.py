"""Find hooks that are missing from compiled code, and hooks that cause recompilations or graph breaks."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FULL
from tenterhook.doctor.observe.hook_record import SAMPLES, HookRecord
from tenterhook.doctor.patch.compiler import Recompiled
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.registry import Subject, Words, found, plural, rule
from tenterhook.doctor.rules.silent.never_fired import compile_again, expression_of
from tenterhook.rig.compiled.graph_cache import Cost

#: the minimum number of recompilations by one hook that the doctor reports; toggling a flag causes only two
HABIT = 3

FIRST = "rig = th.attach(model, plan, optimizer=optimizer)  # before the first call, so nothing is compiled twice"
IN_A_TENSOR = (
    'module.register_buffer("seen", torch.zeros(()))  # keep the state in a tensor\n'
    "def fn(module, args, output):\n    module.seen.add_(output.detach().norm())  # not in a Python list or number"
)
HOOK_INSIDE = (
    "def halve(module, args, output):  # a forward hook: register it before the model is compiled\n"
    "    output.register_hook(lambda grad: grad * 0.5)  # becomes part of the compiled code\n"
    'th.hook(model, fn, on="layer.*", at="grad")  # or hook the gradients of the parameters'
)


@rule("TH112")
def cost_of_a_hook(about: Subject, cost: Cost | None = None, dropped: int = 0) -> Words | None:
    """Report the cost of a hook in a compiled model, or the number of graphs that a rig's hooks invalidated."""
    if cost is None:
        were = "graph that was" if dropped == 1 else "graphs that were"
        return Words(f"{dropped} {were} compiled without the rig's hooks had to be compiled again", FIRST)
    if not cost:
        return None
    targets = plural(cost.callbacks, "target")
    evidence = f"compiled code runs the hook on {targets} through graph callbacks, without a graph break"
    if not cost.callbacks:
        evidence = "the hook is on modules that run as compiled code"
    evidence += "; each callback copies its tensor" if cost.copies else ""
    having, alike = cost.among
    if having < alike:
        evidence += (
            f"; {having} of {alike} compiled modules of the same class have the hook and are compiled separately"
        )
    if not cost.dropped:
        return Words(evidence, "# nothing to do: muting or scheduling the hook does not cause a recompilation")
    void = f"{plural(cost.dropped, 'graph')} without the hook will be dropped and compiled again at the next call"
    return Words(f"{evidence}; {void}", FIRST)


@rule("TH224")
def compiled_without_it(hook: HookRecord, seen: Recording) -> Words | None:
    without = seen.events.compiler.without(hook)
    if not without:
        return None
    more = "at least " if without == SAMPLES else ""
    return Words(
        f"the backward pass ran {more}{plural(without, 'time')} through code that was compiled before the hook "
        "was registered; code that was compiled later contains the hook",
        compile_again(hook),
    )


@rule("TH225")
def operation_left_out(hook: HookRecord, seen: Recording) -> Words | None:
    names = seen.events.compiler.left_out.get(hook.number)
    if not names:
        return None
    return Words(
        f"the hook calls {names[0]}, which declares that it changes none of its arguments; its result is "
        "unused, so the compiler removed the call",
        '@torch.library.custom_op("my::look", mutates_args=("seen",))  # declare the tensor that it writes to\n'
        "def look(value: Tensor, seen: Tensor) -> None:\n    seen.add_(value.norm())",
    )


@rule("TH226")
def gradient_not_kept(about: HookRecord | Subject) -> Words:
    """Explain why a tensor returned by compiled code has no gradient, either in a hook or in `.grad`."""
    if isinstance(about, Subject):
        return Words(
            f"retain_grad() was called on {about.target!r}, which compiled code returned; a backward pass ran through "
            "that code, but .grad is None",
            HOOK_INSIDE,
        )
    return Words(
        f"{plural(about.fired, 'firing')}, each with None; compiled code is one node of the autograd graph, and this "
        "node returns no gradient for the tensor",
        HOOK_INSIDE,
    )


@rule("TH413")
def fires_around_the_model(about: Subject, call: str) -> Words:
    return Words(
        f"torch.compile(model) returned an OptimizedModule that calls the model, so the hook fires for both ({call})",
        "model.compile()  # instead of model = torch.compile(model), which adds a wrapper module",
    )


@rule("TH515")
def compiled_again_and_again(hook: HookRecord, seen: Recording) -> Words | None:
    again = _recompiled(hook, seen)
    if not again or again[-1].alone:
        return None
    refused = any(one.refused for one in again)
    return Words(
        _times(again)
        + ("; then the compiler reached the recompilation limit, so the code now runs uncompiled" if refused else ""),
        IN_A_TENSOR,
        as_note=not refused,
    )


@rule("TH516")
def breaks_the_graph(hook: HookRecord, seen: Recording) -> Words | None:
    compiler, module = seen.events.compiler, hook.owner.now()
    reasons = compiler.breaks.get(hook.number, [])
    if hook.kind in FULL and isinstance(module, nn.Module) and hook.calls is not None and hook.calls.count:
        inside = compiler.runs(module) and module not in compiler.models
        reasons = ["a graph cannot contain module backward hooks"] * (inside and compiler.breaks_for_backward)
    if not reasons:
        return None
    return Words(
        f"{plural(len(reasons), 'graph break')}: {reasons[0]}",
        f'th.hook(model, fn, on="{hook.below}", at="grad")  # hooks on parameters stay outside the graph'
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
        f"{_times(again)}; this is the recompilation limit, and fullgraph=True does not allow uncompiled code",
        _disabled(hook) if again[-1].alone else IN_A_TENSOR,
    )


@rule("TH518")
def compiled_by_itself(hook: HookRecord, seen: Recording) -> Words | None:
    again = _recompiled(hook, seen)
    if not again or not again[-1].alone:
        return None
    refused = any(one.refused for one in again)
    return Words(
        f"the hook runs outside the graph and is compiled separately: {_times(again)}"
        + ("; then the compiler reached the recompilation limit, so the hook now runs uncompiled" if refused else ""),
        _disabled(hook),
        as_note=not refused,
    )


def _recompiled(hook: HookRecord, seen: Recording) -> list[Recompiled]:
    """Return the recompilations that a hook caused, or an empty list if there are too few to report."""
    again = seen.events.compiler.recompiled.get(hook.number, [])
    return again if len(again) >= HABIT else []


def _times(again: list[Recompiled]) -> str:
    last, made = again[-1], sum(not one.refused for one in again)
    times = plural(made, "time")
    return f"{last.frame!r} was recompiled {times} because {last.place} changes a value that the compiled code uses"


def _disabled(hook: HookRecord) -> str:
    tail = "(torch.compiler.disable(fn))  # runs uncompiled, outside the graph"
    return f"{expression_of(hook)}.{hook.kind}{tail}"


def limit_reached(seen: Recording) -> Iterator[Finding]:
    """Explain why a program reached the recompilation limit and failed."""
    seen.events.compiler.collect()
    yield from list(found(*(recompilations_used_up(hook, seen) for hook in seen.hooks)))[:1]


def of_the_program(seen: Recording) -> Iterator[Finding]:
    """Find the problems in a compiled program that cannot be attributed to a single recorded hook."""
    for one in seen.events.compiler.emptied:
        about = Subject(target=one.name, by="retain_grad", place=one.caller.place, minor=not one.caller.users)
        yield from found(gradient_not_kept(about))
    for number in sorted(seen.process.fired_around):
        kind, by = seen.process.everywhere[number]
        if kind.startswith("register_module_forward"):
            about = Subject(target="OptimizedModule", by=kind, place=by.place, minor=not by.users)
            yield from found(fires_around_the_model(about, seen.process.wrapped_calls[0]))
