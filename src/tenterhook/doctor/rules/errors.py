"""What PyTorch's own errors and warnings mean, and ours."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tenterhook.doctor.findings import Finding, finding, many
from tenterhook.doctor.observe.hook_record import BACKWARD, FORWARD, HookRecord, said
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.compiled import limit_reached
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

#: what a text of PyTorch's means: the code, and what to write instead
_ERRORS = (
    (r"BackwardHookFunction.* is a view and is being modified inplace|modified inplace.*BackwardHook", "TH508",
     'th.hook(model, fn, on="layer", at="grad_output")  # bears operations in place\nnn.ReLU(inplace=False)  # or'),
    (r"more than one element of the written-to tensor refers to a single memory location", "TH501",
     "return grad * 2  # a new tensor, not grad.mul_(2)"),
    (r"has no attribute 'register_\w*'", "TH106",
     "for p in module.parameters():               # a layer's gradients\n    p.register_hook(fn)\n"
     "tensor.register_hook(fn)                    # a tensor's gradient\n"
     "module.register_full_backward_hook(fn)      # a module's\n"
     "optimizer.register_step_pre_hook(fn)        # an optimizer's step"),
    (r"got mixed torch\.Tensor and DTensor", "TH507",
     "mask = distribute_tensor(mask, p.device_mesh, p.placements)  # the part that goes with this rank's shard"),
    (r"RemovableHandle", "TH107",
     'torch.save({"hooks": rig.state_dict()}, path)\nrig = th.restore(model, torch.load(path)["hooks"])'),
    (r"Weights only load failed|Unsupported (global|class)", "TH604",
     '@th.action("mine", at=["grad"], modifies=True, elementwise=True, version=1)\ndef mine(grad): ...\n'
     'torch.save({"hooks": rig.state_dict()}, path)  # names and tensors, no pickle'),
    (r"Can't (pickle|get) (local )?(object|attribute)|cannot pickle|Can't pickle", "TH604",
     "torch.save(model.state_dict(), path)  # tensors alone; hooks by name: rig.state_dict()"),
    (r"has changed the (size|type|device) of value|hooks? (must|should) return None|must return None|"
     r"expected Variable, but hook returned|expected Tensor, but hook returned|hook returned", "TH511",
     ""),
    (r"setup_context.*staticmethod|generate_vmap_rule", "TH219",
     'th.hook(model, fn, on="layer", at="grad_output")  # or take the hook off before torch.func'),
    (r"[Mm]odule-level backwards? hooks require|backwards? hooks.*compiled autograd|^Unsupported: ", "TH221",
     'model = torch.compile(model, fullgraph=True)\n'
     'th.hook(model, fn, on="layer.*", at="grad")  # after it; hooks on parameters stay outside of the graph'),
    (r"Expected !nested_tensorlist\[0\]\.empty\(\)", "TH411",
     "loss.backward()\nclip_grad_value_(model.parameters(), 1.0)\noptimizer.step()"),
    (r"A leaf node was passed to _will_engine_execute_node", "TH210",
     "w.register_hook(fn)  # a leaf has a hook of its own"),
    (r"does not require grad and does not have a grad_fn", "TH204",
     "loss = criterion(model(x), y)  # outside torch.no_grad(), with parameters that require grad"),
    (r"CheckpointError|[Rr]ecomputed values for the following tensors have different metadata|"
     r"number of tensors? .* during recomputation", "TH509",
     "loss.backward()\nhandle.remove()  # after the backward, which runs the forward again"),
)  # fmt: skip


_ARITY = re.compile(r"takes (from )?\d+.* positional arguments? but|missing \d+ required positional|unexpected keyword")


_RETURNS = {
    "register_hook": "return new_grad  # one tensor, of the shape of the gradient; or None",
    "register_post_accumulate_grad_hook": "p.grad = new_grad  # in place of a return",
    "register_full_backward_hook": "return (new_grad_input,)  # a tuple, as many as grad_input; or None",
    "register_full_backward_pre_hook": "return (new_grad_output,)  # a tuple, as many as grad_output; or None",
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


def failures(exam: Recording) -> Iterator[Finding]:
    """What ended the program, if it was a hook, or ours."""
    for refusal in exam.refusals:
        handled = exam.failure is None or refusal.fact not in exam.failure.text
        made = "is frozen" if refusal.parameter else "was made under torch.no_grad()" if not refusal.grad_enabled else (
            "does not require grad")  # fmt: skip
        if "doesn't require gradient" in refusal.fact:
            code = "TH103" if refusal.parameter or refusal.grad_enabled else "TH204"
            yield finding(
                code, f"{refusal.kind} on {refusal.target!r}: it {made}",
                "p.requires_grad_(True)  # before it is used" if code == "TH103" else
                "with torch.enable_grad():\n    y = f(x)\ny.register_hook(fn)",
                target=refusal.target, by=refusal.kind, place=refusal.caller.place, lightly=handled,
            )  # fmt: skip
        else:
            yield finding("TH105", f"{refusal.kind} on {refusal.target!r}: {refusal.fact}",
                          "y.register_hook(fn)  # gets the whole gradient, summed over all uses", target=refusal.target,
                          by=refusal.kind, place=refusal.caller.place, lightly=handled)  # fmt: skip
    if exam.failure is None:
        return
    error, text, place = exam.failure.error, exam.failure.text, exam.failure.place
    first = text.partition("\n")[0].partition(". ")[0]
    if isinstance(error, TenterhookError):
        yield of_ours(error, place)
        return
    if text.startswith("FailOnRecompileLimitHit"):
        yield from limit_reached(exam)
        return
    raising = next((h for h in exam.hooks if h.raised == text), None)
    if raising is not None and raising.nones:
        yield said(
            raising, "TH216", f"called with None, and raised {first}",
            "# in the custom Function's backward: return a gradient for this input, not None\n"
            "if grad is None:\n    return None",
        )  # fmt: skip
        return
    for pattern, code, remedy in _ERRORS:
        if re.search(pattern, text):
            if code == "TH204" and exam.course.blind_checkpoints:
                code, place = "TH218", exam.course.blind_checkpoints[0]
                remedy = "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"
            hook = raising or _involved(exam, code)
            remedy = remedy or _RETURNS.get(hook.kind if hook is not None else "", "return None")
            remedy = remedy.replace("layer", hook.owner.name) if hook is not None and hook.owner.name != "." else remedy
            yield said(hook, code, first, remedy) if hook is not None else finding(code, first, remedy, place=place)
            return
    if raising is not None:
        arity = _ARITY.search(text)
        signature = _SIGNATURES.get(raising.kind, "def fn(*args): ...")
        yield said(
            raising, "TH507", first + (f"; it is called as {signature[4:-5]}" if arity else ""),
            signature if arity else "# mend it there, or catch what it raises",
        )  # fmt: skip


def _involved(exam: Recording, code: str) -> HookRecord | None:
    """The hook that an error of PyTorch's is about, where there is but one that it can be."""
    kinds = {"TH508": BACKWARD, "TH219": BACKWARD, "TH221": (*FORWARD, *BACKWARD)}.get(code)
    text = exam.failure.text if exam.failure is not None else ""
    mine = [h for h in exam.hooks if not h.foreign and (kinds is None or h.kind in kinds)]
    if code == "TH604":
        return next((h for h in mine if h.function.rpartition(".")[2] in text), None)
    if code == "TH511":
        named = [h for h in mine if h.returned or h.fired]
        return named[-1] if named else None
    if code == "TH509":
        return next((h for h in mine if h.removed is not None), None)
    return mine[0] if kinds is not None and mine else None


_OURS: tuple[tuple[type[TenterhookError], str], ...] = (
    (DormantError, "TH103"), (ActionError, "TH102"), (RefusedError, "TH105"), (ResolveError, "TH101"),
    (InPlaceError, "TH501"), (ReturnError, "TH511"), (ContractError, "TH511"), (HookError, "TH507"),
    (AttachedError, "TH403"), (StateError, "TH110"), (PlanError, "TH102"), (TenterhookError, "TH105"),
)  # fmt: skip


def of_ours(error: TenterhookError, place: str | None = None) -> Finding:
    """Each of our errors is a finding."""
    code = next(code for kind, code in _OURS if isinstance(error, kind))
    if isinstance(error, DormantError) and "optimizer" in error.fact:
        code = "TH104"
    fact = "; ".join(line.strip() for line in error.fact.splitlines())
    return finding(code, fact, error.remedy or "# see the evidence", hook=error.hook, target=error.target,
                   point=error.point, place=place)  # fmt: skip


def warned(exam: Recording) -> Iterator[Finding]:
    """Somebody read the .grad of a tensor that is no leaf: PyTorch warns, and few read that."""
    hooks = [h for h in exam.hooks if h.kind == "register_hook" and not h.owner.leaf and not h.foreign]
    if not exam.warned or not hooks:
        return
    hook = hooks[-1]
    yield said(
        hook, "TH307",
        f"its .grad was read at {exam.warned[0]}; it was made by an operation, and the gradient went on to what it was "
        f"made of: {many(hook.fired, 'firing')}, {hook.changed} changed",
        "x = (torch.randn(2, 2) * 10).requires_grad_()  # a leaf: requires_grad comes last\n"
        "x.retain_grad()                                # or let it keep its gradient, though it is none",
    )  # fmt: skip
