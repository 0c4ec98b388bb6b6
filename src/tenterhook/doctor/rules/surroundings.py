"""Implement the rules for what surrounds a hook: wrappers, shared tensors, other models, traces and processes."""

from __future__ import annotations

from collections.abc import Sequence

from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_kinds import FORWARD, STATE, STEP, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.observe.model_index import is_of_a_trace
from tenterhook.doctor.patch.compiler import traced
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.reading.bytecode import returns_after
from tenterhook.doctor.rules.registry import Subject, Words, has_successor, plural, rule, with_article


@rule("TH229")
def inside_a_wrapper(hook: HookRecord, seen: Recording) -> Words | None:
    if hook.wrapped_by is None or has_successor(hook, seen):
        return None
    name = hook.owner.name
    alike = (one for one in seen.hooks[hook.number + 1 :] if one.code is hook.code and one.kind == hook.kind)
    if any(one.owner.name.endswith(name) and one.owner.id != hook.owner.id for one in alike):
        return None  # the program hooks the wrapper, too
    return Words(
        f"{name!r} is now {with_article(hook.wrapped_by)}, which contains the hooked module; the hook sees what the "
        "inner module computes, not what the wrapper adds",
        f'model.get_submodule("{name}").{hook.kind}(fn)  # register the hook after the module was wrapped',
    )


@rule("TH238")
def on_the_root_of_a_trace(hook: HookRecord, seen: Recording) -> Words | None:
    place = hook.owner.place
    if hook.kind not in FORWARD or place is None or place.name != "." or place.model not in seen.events.fx_roots:
        return None
    return Words(
        "torch.fx traced forward() of the model itself, so the traced model does not contain the hook, which is on the "
        "model as a whole",
        "outer = nn.Sequential(model)  # the model is then a part, and its hook is traced, too\n"
        "traced = torch.fx.symbolic_trace(outer)",
    )


@rule("TH230")
def called_by_a_trace_only(hook: HookRecord, seen: Recording) -> Words | None:
    if on_the_root_of_a_trace(hook, seen) is not None:
        return None
    times = plural(hook.traced, "time")
    if hook.traced_by is not None and hook.fired > hook.fired_before_trace and hook.changed and hook.removed is None:
        return Words(
            f"the hook was called {times} while {hook.traced_by} traced the model; the traced model contains what the "
            "hook computed then, with the values that its Python variables had at that time",
            "traced = torch.jit.trace(model, x)  # after the values that the hook uses have been set",
            as_note=True,
        )
    if hook.traced_by is None or hook.fired > hook.fired_before_trace:
        return None
    return Words(
        f"the hook was called {times} while {hook.traced_by} traced the model, and never afterwards; the traced model "
        "contains its tensor operations, but not its Python code",
        "features, out = traced(x)  # let the model return the value instead of storing it in a hook",
        as_note=hook.removed is not None or _only_returns(hook),
    )


def _only_returns(hook: HookRecord) -> bool:
    """Return True if the code returns a value and stores nothing. The trace then contains all that it does."""
    stores = any(map(hook.calls_method, ("append", "update", "extend", "setdefault", "__setitem__")))
    return hook.reading is not None and hook.reading.returns and not stores


@rule("TH231")
def returns_early_while_compiling(hook: HookRecord) -> Words | None:
    if hook.serial not in traced or hook.code is None or not returns_after(hook.code, "is_compiling"):
        return None
    return Words(
        "the hook asks is_compiling(), which is True while torch.compile traces the hook; the compiled code contains "
        "only what the hook does then",
        "with torch.compiler.set_stance('force_eager'):  # or remove the test from the hook\n    model(x)",
    )


@rule("TH232")
def no_state_dict(hook: HookRecord, seen: Recording) -> Words | None:
    if hook.kind not in STATE or hook.fired or hook.raised is not None or hook.removed is not None:
        return None
    if any(one.fired for one in seen.hooks if one.caller.place == hook.caller.place):
        return None
    method = "load_state_dict()" if "load" in hook.kind else "state_dict()"
    return Words(
        f"{method} of the module, or of a model that contains it, was not called after the registration",
        f"# call {method}; a library that assigns the tensors itself, as from_pretrained() does, does not call it",
    )


@rule("TH234")
def ran_in_another_process(hook: HookRecord, seen: Recording) -> Words | None:
    children = seen.events.children
    if not children or hook.fired:
        return None
    return Words(
        f"the hook did not fire in this process; the program started {children} child "
        f"process{'es' if children > 1 else ''}, and what the hook does there stays there",
        "results = pool.map(work, batches)  # register the hook in the child process, and return what it stores",
    )


@rule("TH233")
def on_a_node(about: Subject) -> Words:
    return Words(
        "the program registers a hook on a node of the graph, which is not watched; PyTorch frees a node that no "
        "tensor uses, with its hooks, and makes new ones after p.data = ... or model.to(...)",
        "p.register_post_accumulate_grad_hook(fn)  # stays with the parameter",
    )


@rule("TH315")
def replaces_the_reduction(about: Subject) -> Words:
    return Words(
        "the hook replaces the reduction of DDP; what it returns becomes the gradient, and DDP does not divide it by "
        "the number of ranks",
        "bucket.buffer().div_(dist.get_world_size())  # before the sum over the ranks",
    )


@rule("TH414")
def of_every_use(hook: HookRecord) -> Words | None:
    """Report a hook that changes the gradient of a tensor with several uses."""
    if hook.kind != TENSOR[0] or not hook.changed or hook.foreign:
        return None
    cancels = any(look.zeroed is not None or (look.factor is not None and look.factor <= 0) for look in hook.samples)
    if len(hook.names) > 1 and cancels:
        return Words(
            f"the parameter is used as {', '.join(map(repr, hook.names))}; the hook changes the sum of the gradients "
            "of these uses",
            "model.head.weight = nn.Parameter(model.head.weight.detach().clone())  # if the uses are to differ",
            as_note=True,
        )
    if hook.consumers < 2 or not any(look.factor is not None and look.factor < 0 for look in hook.samples):
        return None
    return Words(
        f"{plural(hook.consumers, 'operation')} use the tensor; the hook changes the sum of their gradients",
        "branch = h.view_as(h)  # a tensor of its own for one branch\nbranch.register_hook(fn)",
    )


@rule("TH415")
def step_inside_a_step(hook: HookRecord, together: Sequence[HookRecord] = ()) -> Words | None:
    """Report a hook that fires twice for one step. `together` are the hooks of one function on several optimizers."""
    if together:
        return Words(
            f"the function is a hook of {len(together)} optimizers, which step after the same backward pass, so it "
            f"runs {plural(len(together), 'time')} for one batch, {sum(one.fired for one in together)} times in all",
            f"optimizers[-1].{hook.kind}(fn)  # only of the optimizer that steps last",
            as_note=True,
        )
    if not hook.nested_steps:
        return None
    return Words(
        f"{hook.nested_steps} of {plural(hook.fired, 'firing')} happened in a call of step() inside another step() of "
        "the same optimizer, so the hook fires twice for one step",
        "# override another method than step(), or count only one of the two firings",
    )


def on_several_optimizers(hook: HookRecord, seen: Recording) -> Finding | None:
    """Find a function that is a hook of several optimizers, which step after the same backward pass."""
    if hook.kind not in STEP or hook.foreign or hook.last is None or hook.reads_argument(0):
        return None
    alike = [one for one in seen.hooks if (one.kind, one.code, one.cells) == (hook.kind, hook.code, hook.cells)]
    together = [one for one in alike if one.last is not None and one.last.backwards == hook.last.backwards]
    several = hook is alike[0] and len({one.owner.id for one in together}) > 1 and hook.last.backwards > 1
    return step_inside_a_step(hook, together) if several else None


@rule("TH417")
def in_two_models(hook: HookRecord) -> Words | None:
    place = hook.owner.place
    if place is None or hook.kind not in FORWARD or hook.removed is not None or hook.foreign:
        return None
    other = hook.other_model or (place.other.__name__ if place.other is not None else None)
    if other is None or is_of_a_trace(place.model) or (place.other is not None and is_of_a_trace(place.other)):
        return None
    return Words(
        f"the module is a part of {with_article(place.model.__name__)} and of another model, {with_article(other)}; "
        "the hook fires when either of them runs",
        "other = copy.deepcopy(model)  # give the other model its own modules, before hooks are registered",
    )


@rule("TH235")
def skipped_after_an_error(hook: HookRecord, seen: Recording) -> Words | None:
    """Report a forward hook that fired less often than the pre-hook that was registered beside it."""
    alive = hook.removed is None and hook.fired and not hook.traced and not hook.recomputed
    if hook.kind != FORWARD[1] or not alive or seen.failure is not None or seen.lost:
        return None
    beside = (one for one in seen.hooks if one.kind == FORWARD[0] and one.owner.id == hook.owner.id)
    before = next((one for one in beside if one.born == hook.born and one.removed is None), None)
    if before is None or before.fired <= hook.fired or before.raised is not None:
        return None
    missing = before.fired - hook.fired
    return Words(
        f"{before.function!r}, the pre-hook of the same module, fired {plural(before.fired, 'time')}, and the forward "
        f"hook {plural(hook.fired, 'time')}; in {plural(missing, 'call')}, the module raised an error in between",
        "module.register_forward_hook(fn, always_call=True)  # runs also if the module raises an error",
    )


@rule("TH608")
def not_observed(about: Subject, lost: bool, error: str | None) -> Words | None:
    if lost:
        return Words(
            "the program ended the observation of calls, so what hooks did afterwards is unknown",
            "Run the doctor without the part of the program that calls sys.setprofile or sys.monitoring, such as a "
            "profiler.",
        )
    if error is not None:
        return Words(
            f"an error in the doctor itself, which did not reach the program: {error}",
            "Report this error to the authors of tenterhook. The other findings may be incomplete.",
        )
    return None
