"""Implement the TH2xx rules, which explain why a hook never fired."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial

from torch import nn

from tenterhook import torch_internals as private
from tenterhook.doctor.edits.program_lines import call_the_module
from tenterhook.doctor.observe.hook_kinds import FORWARD, MULTI, STEP, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.observe.usage import Calls
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.registry import SilentSites, Subject, Words, plural, quoting, rule

NO_GRADIENT_FOR_INPUT = "# in backward() of the custom Function, return a gradient for this input instead of None\n"
CHECKPOINT = "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"


def ran(hook: HookRecord) -> str:
    """Return how often the backward pass ran without the hook."""
    return f"the backward pass ran {plural(len(hook.missed_backwards), 'time')}"


@rule("TH201")
def registered_too_late(hook: HookRecord) -> Words | None:
    if hook.kind in TENSOR or not hook.missed_backwards:
        if not hook.born.backwards:
            return None
        return Words(
            f"the backward pass ran {plural(hook.born.backwards, 'time')}, always before the hook was registered",
            "handle = y.register_hook(fn)\nloss.backward()  # after the registration",
        )
    if not hook.missed_backwards[-1].late or len(hook.missed_backwards) != 1:
        return None
    return Words(
        "the module was called before the hook was registered, but not afterwards",
        f"handle = module.{hook.kind}(fn)\nout = module(x)  # after the registration",
    )


@rule("TH202")
def not_on_the_way_to_the_loss(about: HookRecord | SilentSites) -> Words:
    if isinstance(about, SilentSites):
        return Words(
            f"{about.evidence}; no gradient reached the target",
            "loss = criterion(model(x), y)  # use the model that the rig is attached to",
            about.some,
        )
    owner = about.owner
    if about.kind not in TENSOR:
        calls = about.calls.count if about.calls is not None else 0
        return Words(
            "the loss does not depend on the module's output" + (f" ({plural(calls, 'call')})" if calls else ""),
            "loss = criterion(model(x), y)  # use the module's output, and do not detach it",
        )
    if owner.is_parameter:
        return Words(
            f"{ran(about)}; no loss depends on the parameter, because its module was not used or ran "
            "with gradients disabled",
            "h = self.encoder(x)  # in forward(): compute the loss from h, with grad enabled and without detach()",
        )
    return Words(
        f"{ran(about)}; no loss depends on the tensor" + (f" (created by {owner.made_by})" if owner.made_by else ""),
        "y = f(x)\ny.register_hook(fn)\nloss = g(y)  # compute the loss from y itself",
    )


@rule("TH203")
def frozen(hook: HookRecord) -> Words | None:
    if not hook.missed_backwards[-1].frozen:
        return None
    return Words(
        f"{ran(hook)} while requires_grad was False",
        f'model.get_parameter("{_parameter_path(hook)}").requires_grad_(True)  # before the forward pass'
        if hook.owner.is_parameter
        else "x.requires_grad_(True)  # before the forward pass",
    )


def _parameter_path(hook: HookRecord) -> str:
    """Return the parameter name that `get_parameter` accepts.

    If the weight is parametrized, this name differs from the name of the hook's target.
    """
    place = hook.owner.place
    root, module = (place.root(), place.module()) if place is not None else (None, None)
    for prefix, candidate in root.named_modules() if root is not None else ():
        if place is not None and candidate is module:
            return f"{prefix}.{place.key}".removeprefix(".")
    return hook.owner.name


@rule("TH204")
def without_grad(about: HookRecord | Subject) -> Words | None:
    if isinstance(about, Subject):
        return Words(
            f"{about.by} on {about.target!r}: the tensor was computed under torch.no_grad()",
            "with torch.enable_grad():\n    y = f(x)\ny.register_hook(fn)",
        )
    calls = about.calls
    if calls is None or not calls.count or calls.without_grad != calls.count:
        return None
    return Words(
        f"the module was called {plural(calls.count, 'time')}, always under torch.no_grad()",
        "out = model(x)  # outside torch.no_grad() and inference_mode()",
    )


def _calls_of_parent(hook: HookRecord, around: Mapping[nn.Module, int]) -> tuple[str, str, int] | None:
    """Return the name, the class and the calls of the module of PyTorch that contains the hooked one, if it ran."""
    place = hook.owner.place
    root, module = (place.root(), place.module()) if place is not None else (None, None)
    if place is None or root is None or module is None or not any(True for _ in module.parameters(recurse=False)):
        return None
    name = place.name.rpartition(".")[0]
    parent = dict(root.named_modules()).get(name)
    count = around.get(parent, 0) if parent is not None else 0
    from_torch = type(parent).__module__.startswith("torch.nn") and not isinstance(parent, nn.Sequential)
    return (name, type(parent).__name__, count) if count and from_torch else None


def _parameters(hook: HookRecord) -> Collection[str]:
    module = hook.owner.now()
    return private.own_parameters(module) if isinstance(module, nn.Module) else ()


@rule("TH207")
def used_without_a_call(about: HookRecord | SilentSites, around: Mapping[nn.Module, int] | None = None) -> Words | None:
    """Report a module whose parameters are used. `around` counts the calls of modules that contain hooked ones."""
    if isinstance(about, SilentSites):
        owner = about.first.target.owner()
        if not isinstance(owner, nn.Module) or all(p.grad is None for p in owner.parameters()):
            return None
        return Words(
            f"{about.evidence}; the module's parameters have gradients, so other code uses them directly",
            f'th.hook(model, fn, on="{about.first.name}.*", at="grad")  # hook the parameters',
            about.some,
        )
    if about.bypassed and not about.foreign:
        method = next(iter(about.bypassed))
        return Words(
            f"the program called {method}() of the module itself, rather than the module; then the hook does not run",
            f"out = module(x)  # not module.{method}(x)",
            as_note=about.fired > 0,
            edit=partial(call_the_module, name=about.owner.name.rpartition(".")[2]) if method == "forward" else None,
        )
    if not about.fired and (name := getattr(about.fn(), "name", None)) and f"{name}_g" in _parameters(about):
        return Words(
            f"this {about.owner.kind} module was never called, so the hook did not compute its {name!r} again; code "
            "that reads the attribute finds the value of the registration, also after load_state_dict()",
            f"weight = torch._weight_norm(module.{name}_v, module.{name}_g)  # or call the module",
        )
    if not about.fired and around is not None and (calls := _calls_of_parent(about, around)):
        name, kind, count = calls
        return Words(
            f"{name!r}, a {kind}, was called {plural(count, 'time')} and uses the weights of {about.owner.name!r} "
            "directly, without calling it",
            f'model.get_submodule("{name}").{about.kind}(fn)  # hook the module that is called',
        )
    if about.fired or not about.missed_backwards or not about.missed_backwards[-1].used:
        return None
    return Words(
        f"{ran(about)} and reached the module's parameters, but the module was never called; "
        "the program calls .forward() or uses the weights directly",
        "out = module(x)  # not module.forward(x)\n"
        f'th.hook(model, fn, on="{about.below}", at="grad")  # or hook the parameters',
    )


@rule("TH208")
def output_without_tensors(hook: HookRecord) -> Words | None:
    calls = hook.calls or Calls()
    if calls.odd is None:
        return None
    return Words(
        f"{plural(calls.count, 'call')}; PyTorch does not find all tensors in the output (type: {calls.odd})",
        f'th.hook(model, fn, on="{hook.owner.name}", at="grad_output")  # finds tensors in outputs of any structure',
    )


@rule("TH209")
def compiled_before(hook: HookRecord, seen: Recording) -> Words | None:
    module, compiler = hook.owner.now(), seen.events.compiler
    if not isinstance(module, nn.Module) or not compiler.runs(module) or hook.number not in compiler.late:
        return None
    missed = compiler.missed.get(hook.number, 0)
    if hook.fired and (not missed or hook.number in compiler.recompiled):  # a hook can be compiled by itself
        return None
    return Words(
        f"in {plural(missed, 'call')}, the compiled model ran code that does not contain the hook; the hook fired only "
        "in calls of the model that is not compiled"
        if hook.fired
        else "the model runs compiled code that does not contain the hook",
        compile_again(hook),
    )


def compile_again(hook: HookRecord) -> str:
    """Return Python code that registers the hook and compiles the model again."""
    forget = "torch._dynamo.reset()         # discard the compiled code without the hook"
    return f"{expression_of(hook)}.{hook.kind}(fn)\n{forget}\nmodel = torch.compile(model)"


def expression_of(hook: HookRecord) -> str:
    """Return a Python expression for the module that a hook is registered on."""
    return "model" if hook.owner.name == "." else f'model.get_submodule("{hook.owner.name}")'


@rule("TH210")
def not_in_this_backward(hook: HookRecord, without: int = 0) -> Words | None:
    """Report a hook that `autograd.grad` does not run; for a hook that fired, `without` counts these calls."""
    if hook.fired:
        return without_accumulation(hook, without)
    last, accumulated = hook.missed_backwards[-1], hook.kind == TENSOR[1]
    if last.backward == "backward":
        return None
    if hook.kind in TENSOR:
        return Words(
            f"{ran(hook)}, most recently through {last.backward}, which "
            + ("does not set .grad" if accumulated else "did not include the tensor"),
            "loss.backward()" + ("" if accumulated else "  # without inputs=, or with this tensor in inputs="),
        )
    return Words(
        f"the program called {last.backward}, which runs only the part of the graph that leads to its inputs",
        "loss.backward()",
    )


def without_accumulation(hook: HookRecord, without: int) -> Words | None:
    """Report the calls of `autograd.grad` for the parameter of a hook that fires in other backward passes."""
    if not without or hook.kind != TENSOR[1]:
        return None
    return Words(
        f"the hook fired {plural(hook.fired, 'time')}; in {plural(without, 'call')} of autograd.grad, which does not "
        "set .grad, the gradient of this parameter was computed without the hook",
        "p.register_hook(fn)  # also runs in autograd.grad",
        as_note=True,
    )


@rule("TH211")
def removed_before_it_could_fire(hook: HookRecord, backwards: int) -> Words | None:
    if hook.kind in FORWARD:
        return Words(
            "the hook was removed before the module was called",
            "out = model(x)\nhandle.remove()  # after the forward pass",
        )
    if hook.removed is None or hook.removed.backwards == backwards:
        return None
    until = hook.removed.backwards
    return Words(
        f"the backward pass ran {plural(until, 'time')} before the hook was removed, and "
        f"{plural(backwards - until, 'time')} after",
        "loss.backward()\nhandle.remove()  # after the backward pass",
    )


@rule("TH212")
def step_skipped(hook: HookRecord, steps: int) -> Words | None:
    if not steps:
        return None
    return Words(
        f"GradScaler skipped {plural(steps, 'step')} because gradients were not finite",
        "scaler.step(optimizer)  # calls optimizer.step() only if every gradient is finite\n"
        "scaler.update()         # lowers the scale after a skipped step",
    )


@rule("TH213")
def never_called(about: HookRecord | SilentSites) -> Words:
    if isinstance(about, SilentSites):
        if about.first.point in ("step_pre", "step_post"):
            return Words(f"{about.evidence}; the optimizer did not step", "optimizer.step()  # after loss.backward()")
        if about.first.target.kind != "module":
            return Words(about.evidence, 'th.tap(t, "name", within=self)  # in forward() of the module')
        evidence = f"{about.evidence}; the model's forward() does not call the module"
        return Words(evidence, "print(rig)  # shows on which targets each hook fires", about.some)
    if about.kind in STEP:
        return Words(f"this {about.owner.kind} made no step", "optimizer.step()  # after loss.backward()")
    return Words(
        f"this {about.owner.kind} module was never called",
        f"{_call_of(about.owner.name)}  # in the model's forward(); or hook a module that runs",
        isinstance(about.owner.now(), nn.ModuleList | nn.ModuleDict),
    )


def _call_of(name: str) -> str:
    """Return Python code that calls a module in the `forward` method of its model."""
    return "out = model(x)" if name == "." else re.sub(r"\.(\d+)\b", r"[\1]", f"x = self.{name}") + "(x)"


@rule("TH214")
def no_backward(hook: HookRecord) -> Words:
    return Words(
        "no backward pass ran after the hook was registered",
        "loss = criterion(model(x), y)\nloss.backward()  # with parameters that require grad, outside torch.no_grad()",
    )


@rule("TH215")
def not_due(about: SilentSites | Subject, why: str, steps: int = 0) -> Words:
    """Report a rig's hook that was not due. `why` is the reason in the sites' records, or the hook's schedule."""
    if isinstance(about, SilentSites):
        return Words(f"{about.evidence}; {why}", 'th.When(phase="any")')
    return Words(
        f"{plural(steps, 'step')} ran, but the hook was not due in any of them: When({why})", "th.When(every=1)"
    )


@rule("TH216")
def gradient_was_none(about: HookRecord | SilentSites, why: str = "") -> Words:
    """Report a None gradient. `why` is the error that a raw hook raised, or the reason in a site's record."""
    if isinstance(about, SilentSites):
        return Words(
            f"{about.evidence}; {why}",
            f'print(rig.ledger["{about.first.hook}"])  # shows how often and why the hook was skipped',
        )
    if why:
        return Words(
            f"the hook was called with None and raised {why}",
            NO_GRADIENT_FOR_INPUT + "if grad is None:\n    return None",
        )
    if about.kind == MULTI:
        return Words(
            f"in {about.nones} of {plural(about.fired, 'firing')}, the list of gradients contained None, because the "
            "loss does not depend on every tensor",
            "norms = [None if grad is None else grad.norm() for grad in grads]  # keep the positions",
        )
    return Words(
        f"{plural(about.fired, 'firing')}, {about.nones} with None; the operation that uses the tensor returned no "
        "gradient for it",
        NO_GRADIENT_FOR_INPUT + "# or hook a tensor that gets a gradient",
    )


@rule("TH217")
def tensor_let_go(hook: HookRecord) -> Words | None:
    if hook.missed_backwards[0].alive:
        return None
    return Words(
        f"{ran(hook)}; the tensor had already been freed, and no loss depends on it",
        "y = f(x)\ny.register_hook(fn)\nloss = g(y)  # compute the loss from this y",
    )


@rule("TH218")
def checkpoint_without_gradient(hook: HookRecord, places: list[str]) -> Words | None:
    if not places:
        return None
    return Words(f"the checkpoint at {places[0]} received no input that requires grad", CHECKPOINT)


@rule("TH220")
def called_functionally(hook: HookRecord, functional: set[int]) -> Words | None:
    if hook.owner.id not in functional:
        return None
    return Words(
        f"{ran(hook)}, but never with this parameter, because functional_call replaced it with another tensor",
        "params[name].register_hook(fn)  # hook the tensors that you pass\n"
        "torch.func.functional_call(model, params, args)",
    )


torch_func = quoting("TH219")
not_compilable = quoting("TH221")

#: rules whose findings are only notes if another hook from the same line fired, because a line that hooks many
#: targets may hook targets that this run does not use
OF_ONE_AMONG_MANY = (
    registered_too_late,
    not_on_the_way_to_the_loss,
    frozen,
    used_without_a_call,
    removed_before_it_could_fire,
    never_called,
    tensor_let_go,
)
