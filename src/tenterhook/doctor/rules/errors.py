"""Choose the rule that explains an error raised by PyTorch or tenterhook."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording, Refusal
from tenterhook.doctor.rules.compiled import limit_reached
from tenterhook.doctor.rules.hazards import (
    changes_in_place,
    excludes_in_place,
    gone_at_its_recomputation,
    keeps_graphs,
    pickled,
    raised,
    wrong_return,
)
from tenterhook.doctor.rules.moments.timing import registered_twice, steps_inside_the_backward
from tenterhook.doctor.rules.registry import Rule, Subject, found
from tenterhook.doctor.rules.silent.never_fired import (
    CHECKPOINT,
    checkpoint_without_gradient,
    gradient_was_none,
    not_compilable,
    not_in_this_backward,
    torch_func,
    without_grad,
)
from tenterhook.doctor.rules.silent.not_installed import (
    KEPT_BY_NAME,
    frozen_target,
    handle_was_loaded,
    in_no_optimizer,
    no_such_function,
    refused,
    saved_hooks_do_not_fit,
    selects_nothing,
    wrong_plan,
)
from tenterhook.doctor.rules.values.stored_values import bound_to_its_context, read_after_the_loop
from tenterhook.errors import (
    ActionError,
    AttachedError,
    ContractError,
    DormantError,
    HookError,
    InPlaceError,
    PlanError,
    RefusedError,
    ResolveError,
    ReturnError,
    StateError,
    TenterhookError,
)

#: for each PyTorch error: a pattern that matches its text, the rule that explains it, and the remedy; `layer` in a
#: selector stands for the hook's target
_ERRORS: tuple[tuple[str, Rule[...], str], ...] = (
    (
        r"BackwardHookFunction.* is a view and is being modified inplace|modified inplace.*BackwardHook",
        excludes_in_place,
        'th.hook(model, fn, on="layer", at="grad_output")  # works with in-place operations\n'
        "nn.ReLU(inplace=False)  # or do not change the output in place",
    ),
    (
        r"more than one element of the written-to tensor refers to a single memory location",
        changes_in_place,
        "return grad * 2  # a new tensor instead of grad.mul_(2)",
    ),
    (
        r"has no attribute 'register_\w*'",
        no_such_function,
        "for p in module.parameters():\n    p.register_hook(fn)                 # gradient of a parameter\n"
        "tensor.register_hook(fn)                # gradient of a tensor\n"
        "module.register_full_backward_hook(fn)  # gradients of a module's inputs and outputs\n"
        "optimizer.register_step_pre_hook(fn)    # step of an optimizer",
    ),
    (
        r"got mixed torch\.Tensor and DTensor",
        raised,
        "mask = distribute_tensor(mask, p.device_mesh, p.placements)  # shard the mask like the parameter",
    ),
    (r"RemovableHandle", handle_was_loaded, KEPT_BY_NAME),
    (
        r"Weights only load failed|Unsupported (global|class)",
        pickled,
        '@th.action("mine", at=["grad"], modifies=True, elementwise=True, version=1)\ndef mine(grad): ...\n'
        'torch.save({"hooks": rig.state_dict()}, path)  # contains only names and tensors',
    ),
    (
        r"Can't (pickle|get) (local )?(object|attribute)|cannot pickle|Can't pickle",
        pickled,
        "torch.save(model.state_dict(), path)  # tensors only; save hooks with rig.state_dict()",
    ),
    (
        r"has changed the (size|type|device) of value|hooks? (must|should) return None|must return None|"
        r"expected Variable, but hook returned|expected Tensor, but hook returned|hook returned",
        wrong_return,
        "",
    ),
    (
        r"setup_context.*staticmethod|generate_vmap_rule",
        torch_func,
        'th.hook(model, fn, on="layer", at="grad_output")  # or remove the hook before you use torch.func',
    ),
    (
        r"[Mm]odule-level backwards? hooks require|backwards? hooks.*compiled autograd|^Unsupported: ",
        not_compilable,
        "model = torch.compile(model, fullgraph=True)\n"
        'th.hook(model, fn, on="layer.*", at="grad")  # hooks on parameters stay outside the graph',
    ),
    (
        r"Expected !nested_tensorlist\[0\]\.empty\(\)",
        steps_inside_the_backward,
        "loss.backward()\nclip_grad_value_(model.parameters(), 1.0)\noptimizer.step()",
    ),
    (
        r"Inference tensors cannot be",
        bound_to_its_context,
        "with torch.no_grad():  # instead of torch.inference_mode()\n    model(x)",
    ),
    (
        r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol",
        keeps_graphs,
        "kept.append(value.detach())",
    ),
    (
        r"A leaf node was passed to _will_engine_execute_node",
        not_in_this_backward,
        "w.register_hook(fn)  # register one hook on each leaf",
    ),
    (
        r"does not require grad and does not have a grad_fn",
        without_grad,
        "loss = criterion(model(x), y)  # outside torch.no_grad(), with parameters that require grad",
    ),
    (
        r"CheckpointError|[Rr]ecomputed values for the following tensors have different metadata|"
        r"number of tensors? .* during recomputation",
        gone_at_its_recomputation,
        "loss.backward()  # runs the forward pass again\nhandle.remove()  # so remove the hook afterwards",
    ),
)


_ARITY = re.compile(r"takes (from )?\d+.* positional arguments? but|missing \d+ required positional|unexpected keyword")


_RETURNS = {
    "register_hook": "return new_grad  # one tensor with the shape of the gradient, or None",
    "register_post_accumulate_grad_hook": "p.grad = new_grad  # assign the gradient instead of returning it",
    "register_full_backward_hook": "return (new_grad_input,)  # a tuple with the same length as grad_input",
    "register_full_backward_pre_hook": "return (new_grad_output,)  # a tuple with the same length as grad_output",
}


_SIGNATURES = {
    "register_hook": "def fn(grad): ...",
    "register_post_accumulate_grad_hook": "def fn(parameter): ...",
    "register_forward_pre_hook": "def fn(module, args): ...",
    "register_forward_hook": "def fn(module, args, output): ...",
    "register_full_backward_pre_hook": "def fn(module, grad_output): ...",
    "register_full_backward_hook": "def fn(module, grad_input, grad_output): ...",
    "register_backward_hook": "def fn(module, grad_input, grad_output): ...",
    "register_step_pre_hook": "def fn(optimizer, args, kwargs): ...",
    "register_step_post_hook": "def fn(optimizer, args, kwargs): ...",
}


#: for each rule, the register functions whose hooks the rule can explain
_INVOLVED: dict[Rule[...], tuple[str, ...]] = {
    excludes_in_place: BACKWARD,
    torch_func: BACKWARD,
    not_compilable: (*FORWARD, *BACKWARD),
}

#: for each tenterhook error class, the rule that reports it; the first matching class applies
_OURS: tuple[tuple[type[TenterhookError], Rule[...]], ...] = (
    (DormantError, frozen_target),
    (ActionError, wrong_plan),
    (RefusedError, refused),
    (ResolveError, selects_nothing),
    (InPlaceError, changes_in_place),
    (ReturnError, wrong_return),
    (ContractError, wrong_return),
    (HookError, raised),
    (AttachedError, registered_twice),
    (StateError, saved_hooks_do_not_fit),
    (PlanError, wrong_plan),
    (TenterhookError, refused),
)


def failures(seen: Recording) -> Iterator[Finding]:
    """Explain why PyTorch rejected registrations and why the program failed."""
    for refusal in seen.refusals:
        yield from found(_refusal(refusal, handled=seen.failure is None or refusal.fact not in seen.failure.text))
    if seen.failure is not None:
        yield from _failure(seen, seen.failure.error, seen.failure.text, seen.failure.place)
        return
    for hook in seen.hooks:
        if not hook.foreign and hook.raised is not None:
            yield from found(raised(hook, f"{hook.raised}; the program caught the error", None))
        elif not hook.foreign and hook.misfit is not None and not hook.fired:
            yield from found(raised(hook, hook.misfit, _SIGNATURES.get(hook.kind)))
        elif not hook.foreign and hook.returns.invalid is not None:
            text = f"the hook returned {hook.returns.invalid}; PyTorch raised an error, which the program caught"
            remedy = "return args, kwargs" if hook.kind in FORWARD else "return tuple(g * 2 for g in grad_input)"
            yield wrong_return.quote(hook, text, remedy)


def _refusal(refusal: Refusal, *, handled: bool) -> Finding | None:
    about = Subject(target=refusal.target, by=refusal.kind, place=refusal.caller.place, minor=handled)
    if "doesn't require gradient" not in refusal.fact:
        return refused(about, refusal.fact)
    if refusal.parameter or refusal.grad_enabled:
        return frozen_target(about, "is frozen" if refusal.parameter else "does not require grad")
    return without_grad(about)


def _failure(seen: Recording, error: BaseException, text: str, place: str) -> Iterator[Finding]:
    first = text.partition("\n")[0].partition(". ")[0]
    if isinstance(error, TenterhookError):
        yield of_ours(error, place)
        return
    if text.startswith("FailOnRecompileLimitHit"):
        yield from limit_reached(seen)
        return
    raising = next((h for h in seen.hooks if h.raised == text), None)
    if raising is None and _ARITY.search(text):
        raising = next((h for h in seen.hooks if h.misfit and h.function.rpartition(".")[2] in text), None)
    if raising is not None and raising.nones:
        yield from found(gradient_was_none(raising, first))
        return
    for pattern, rule, remedy in _ERRORS:
        if re.search(pattern, text):
            if rule is wrong_return and any(True for _ in read_after_the_loop(seen)):
                return  # that finding is the cause
            if rule is without_grad and seen.events.blind_checkpoints:
                rule, remedy, place = checkpoint_without_gradient, CHECKPOINT, seen.events.blind_checkpoints[0]
            hook = raising or _involved(seen, rule, text)
            remedy = remedy or _RETURNS.get(hook.kind if hook is not None else "", "return None")
            remedy = _with_target(remedy, hook) if hook is not None else remedy
            yield rule.quote(hook if hook is not None else Subject(place=place), first, remedy)
            return
    if raising is not None:
        signature = _SIGNATURES.get(raising.kind, "def fn(*args): ...") if _ARITY.search(text) else None
        yield from found(raised(raising, first, signature))


def _with_target(remedy: str, hook: HookRecord) -> str:
    """Insert the name of the hook's target into the selectors of a remedy."""
    return remedy.replace('on="layer.*"', f'on="{hook.below}"').replace('on="layer"', f'on="{hook.owner.name}"')


def _involved(seen: Recording, rule: Rule[...], text: str) -> HookRecord | None:
    """Return the hook that caused a PyTorch error, if the rule and the error text identify one."""
    kinds = _INVOLVED.get(rule)
    mine = [h for h in seen.hooks if not h.foreign and (kinds is None or h.kind in kinds)]
    if rule is bound_to_its_context:
        return next((h for h in mine if any(one.bound_to for one in h.stored)), None)
    if rule is keeps_graphs:
        return next((h for h in mine if any(one.graph for one in h.stored)), None)
    if rule is pickled:
        return next((h for h in mine if h.function.rpartition(".")[2] in text), None)
    if rule is wrong_return:
        named = [h for h in mine if h.returned or h.fired]
        return named[-1] if named else None
    if rule is gone_at_its_recomputation:
        return next((h for h in mine if h.removed is not None), None)
    return mine[0] if kinds is not None and mine else None


def of_ours(error: TenterhookError, place: str | None = None) -> Finding:
    """Turn a tenterhook error into a finding."""
    rule = next(rule for kind, rule in _OURS if isinstance(error, kind))
    if isinstance(error, DormantError) and "optimizer" in error.fact:
        rule = in_no_optimizer
    fact = "; ".join(line.strip() for line in error.fact.splitlines())
    about = Subject(error.hook, error.target, error.point, place=place)
    return rule.quote(about, fact, error.remedy or "# see the evidence")
