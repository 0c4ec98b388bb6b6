"""Rules TH2xx: a hook never fired."""

from __future__ import annotations

from torch import nn

from tenterhook.doctor.observe.hook_record import FORWARD, TENSOR, Calls, HookRecord
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.registry import SilentSites, Subject, Words, plural, quoting, rule

NO_GRADIENT_FOR_INPUT = "# in the custom Function's backward: return a gradient for this input, not None\n"
CHECKPOINT = "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"


def _ran(hook: HookRecord) -> str:
    return f"{plural(len(hook.missed_backwards), 'backward')} ran"


@rule("TH201")
def registered_too_late(hook: HookRecord) -> Words | None:
    if hook.kind in TENSOR or not hook.missed_backwards:
        if not hook.born.backwards:
            return None
        return Words(
            f"{plural(hook.born.backwards, 'backward')} ran before it was registered, none since",
            "handle = y.register_hook(fn)  # first\nloss.backward()                # then",
        )
    if not hook.missed_backwards[-1].late or len(hook.missed_backwards) != 1:
        return None
    return Words(
        "the module had run forward before it was registered, and was not called since",
        f"handle = module.{hook.kind}(fn)  # first\nout = module(x)                # then",
    )


@rule("TH202")
def not_on_the_way_to_the_loss(about: HookRecord | SilentSites) -> Words:
    if isinstance(about, SilentSites):
        return Words(
            f"{about.evidence}; no gradient came to it",
            "loss = criterion(model(x), y)  # of the model that the rig is on",
            about.some,
        )
    owner = about.owner
    if about.kind not in TENSOR:
        calls = about.calls.count if about.calls is not None else 0
        return Words(
            "the loss depends on nothing that it returned" + (f" in {plural(calls, 'call')}" if calls else ""),
            "loss = criterion(model(x), y)  # from what the module returned, not detached",
        )
    if owner.is_parameter:
        return Words(
            f"{_ran(about)}; the loss of none depends on it: its module was not used, or without grad",
            "h = self.encoder(x)  # in the forward: used for the loss, not inside torch.no_grad(), not detached",
        )
    return Words(
        f"{_ran(about)}; the loss of none depends on it"
        + (f" (it comes from {owner.made_by})" if owner.made_by else ""),
        "y = f(x)\ny.register_hook(fn)\nloss = g(y)  # the loss has to come from y, not from what y was made of",
    )


@rule("TH203")
def frozen(hook: HookRecord) -> Words | None:
    if not hook.missed_backwards[-1].frozen:
        return None
    return Words(
        f"{_ran(hook)}, with requires_grad=False on it",
        f'model.get_parameter("{hook.owner.name}").requires_grad_(True)  # before the forward'
        if hook.owner.is_parameter
        else "x.requires_grad_(True)  # before the forward",
    )


@rule("TH204")
def without_grad(about: HookRecord | Subject) -> Words | None:
    if isinstance(about, Subject):
        return Words(
            f"{about.by} on {about.target!r}: it was made under torch.no_grad()",
            "with torch.enable_grad():\n    y = f(x)\ny.register_hook(fn)",
        )
    calls = about.calls
    if calls is None or not calls.count or calls.without_grad != calls.count:
        return None
    return Words(
        f"{plural(calls.count, 'call')} of the module, all under torch.no_grad()",
        "out = model(x)  # not inside torch.no_grad() or inference_mode()",
    )


@rule("TH205")
def parameter_replaced(hook: HookRecord) -> Words | None:
    last, name = hook.missed_backwards[-1], hook.owner.name
    if last.sharded:
        return Words(
            f"{_ran(hook)}; fully_shard or parallelize_module put a DTensor at {name!r} since, without the hook",
            f'th.hook(model, fn, on="{name}", at="grad_final", optimizer=optimizer)  # by name\n'
            "p.register_post_accumulate_grad_hook(fn)  # or on what stands there after fully_shard(model)",
        )
    if last.replaced:
        return Words(
            f"{_ran(hook)}; another parameter object stands at {name!r} now, without the hook",
            f'th.hook(model, fn, on="{name}", at="grad")  # by name: it finds what stands there',
        )
    return None


@rule("TH206")
def another_model_ran(about: HookRecord | SilentSites, model: str, steps: int = 0) -> Words:
    if isinstance(about, SilentSites):
        return Words(
            f"{about.evidence}; this model ran no forward in {plural(steps, 'step')}",
            "rig = th.attach(model, plan, optimizer=optimizer)  # the model that is trained",
        )
    point = "grad" if about.kind in TENSOR else "output" if about.kind in FORWARD else "grad_output"
    return Words(
        f"the loss came from another {model} object; of this one no parameter was in the graph",
        f'th.hook(model, fn, on="{about.owner.name}", at="{point}")  # model: the object whose loss it is',
    )


@rule("TH207")
def used_without_a_call(about: HookRecord | SilentSites) -> Words | None:
    if isinstance(about, SilentSites):
        owner = about.first.target.owner()
        if not isinstance(owner, nn.Module) or all(p.grad is None for p in owner.parameters()):
            return None
        return Words(
            f"{about.evidence}; its parameters have gradients, so somebody uses them without calling it",
            f'th.hook(model, fn, on="{about.first.name}.*", at="grad")  # what is used',
            about.some,
        )
    if not about.missed_backwards or not about.missed_backwards[-1].used:
        return None
    return Words(
        f"0 calls in {plural(len(about.missed_backwards), 'backward')} that used its parameters: "
        "somebody calls .forward() or uses its weights directly",
        "out = module(x)  # not module.forward(x)\n"
        f'th.hook(model, fn, on="{about.below}", at="grad")  # or hook what is used',
    )


@rule("TH208")
def output_without_tensors(hook: HookRecord) -> Words | None:
    calls = hook.calls or Calls()
    if calls.odd is None:
        return None
    return Words(
        f"{plural(calls.count, 'call')}; it returns a {calls.odd}, where PyTorch looks for no tensors",
        f'th.hook(model, fn, on="{hook.owner.name}", at="grad_output")  # each tensor of any output',
    )


@rule("TH209")
def compiled_before(hook: HookRecord, seen: Recording) -> Words | None:
    module, compiler = hook.owner.now(), seen.events.compiler
    if not isinstance(module, nn.Module) or not compiler.runs(module) or hook.number not in compiler.late:
        return None
    return Words(
        "the model runs as compiled code that was made without the hook",
        compile_again(hook),
    )


def compile_again(hook: HookRecord) -> str:
    """Return the code that compiles the model with the hook."""
    forget = "torch._dynamo.reset()         # forget the code that was made without it"
    return f"{expression_of(hook)}.{hook.kind}(fn)\n{forget}\nmodel = torch.compile(model)"


def expression_of(hook: HookRecord) -> str:
    """Return the code that finds the module a hook is on."""
    return "model" if hook.owner.name == "." else f'model.get_submodule("{hook.owner.name}")'


@rule("TH210")
def not_in_this_backward(hook: HookRecord) -> Words | None:
    last, accumulated = hook.missed_backwards[-1], hook.kind == TENSOR[1]
    if last.backward == "backward":
        return None
    if hook.kind in TENSOR:
        return Words(
            f"{_ran(hook)}, the last by {last.backward}, which " + ("fills no .grad" if accumulated else "left it out"),
            "loss.backward()" + ("" if accumulated else "  # without inputs=, or with this tensor among them"),
        )
    return Words(
        f"the backward was {last.backward}: it runs only what leads to the tensors it was asked for", "loss.backward()"
    )


@rule("TH211")
def removed_before_it_could_fire(hook: HookRecord, backwards: int) -> Words | None:
    if hook.kind in FORWARD:
        return Words(
            "removed before the module was called",
            "out = model(x)\nhandle.remove()  # after the forward, not before it",
        )
    if hook.removed is None or hook.removed.backwards == backwards:
        return None
    until = hook.removed.backwards
    return Words(
        f"removed after {plural(until, 'backward')}, and {backwards - until} ran after that",
        "loss.backward()\nhandle.remove()  # after the backward, not before it",
    )


@rule("TH212")
def step_skipped(hook: HookRecord, steps: int) -> Words | None:
    if not steps:
        return None
    return Words(
        f"GradScaler skipped {plural(steps, 'step')}: gradients were not finite",
        "scaler.step(optimizer)  # calls optimizer.step() only if every gradient is finite\n"
        "scaler.update()         # lowers the scale, so that the next one is",
    )


@rule("TH213")
def never_called(about: HookRecord | SilentSites) -> Words:
    if isinstance(about, SilentSites):
        if about.first.target.kind != "module":
            return Words(about.evidence, 'th.tap(t, "name", within=self)  # in the forward')
        evidence = f"{about.evidence}; the model's forward does not call it"
        return Words(evidence, "print(rig)  # which fire", about.some)
    return Words(
        f"0 calls of this {about.owner.kind}",
        f"x = self.{about.owner.name}(x)  # in the forward of the model; or hook a module that runs",
        isinstance(about.owner.now(), nn.ModuleList | nn.ModuleDict),
    )


@rule("TH214")
def no_backward(hook: HookRecord) -> Words:
    return Words(
        "0 backwards ran",
        "loss = criterion(model(x), y)\nloss.backward()  # on what requires grad, outside torch.no_grad()",
    )


@rule("TH215")
def not_due(about: SilentSites | Subject, why: str, steps: int = 0) -> Words:
    """A rig's hook waits: `why` is why its sites skip, or its schedule."""
    if isinstance(about, SilentSites):
        return Words(f"{about.evidence}; {why}", 'th.When(phase="any")')
    return Words(f"{plural(steps, 'step')}, due in none: When({why})", "th.When(every=1)")


@rule("TH216")
def gradient_was_none(about: HookRecord | SilentSites, why: str = "") -> Words:
    """`why`: of a raw hook, what it raised; of sites of a rig, why they skip."""
    if isinstance(about, SilentSites):
        return Words(f"{about.evidence}; {why}", "print(rig.ledger[...])  # how often, and why")
    if why:
        return Words(f"called with None, and raised {why}", NO_GRADIENT_FOR_INPUT + "if grad is None:\n    return None")
    return Words(
        f"{plural(about.fired, 'firing')}, {about.nones} of them with None: what uses it gives no gradient",
        NO_GRADIENT_FOR_INPUT + "# or hook what the gradient does flow through",
    )


@rule("TH217")
def tensor_let_go(hook: HookRecord) -> Words | None:
    if hook.missed_backwards[0].alive:
        return None
    return Words(
        f"{_ran(hook)}; the tensor was let go before the first of them, and the loss did not need it",
        "y = f(x)\ny.register_hook(fn)\nloss = g(y)  # the loss has to come from this very y",
    )


@rule("TH218")
def checkpoint_without_gradient(hook: HookRecord, places: list[str]) -> Words | None:
    if not places:
        return None
    return Words(f"the checkpoint at {places[0]} got no input that requires grad", CHECKPOINT)


@rule("TH220")
def called_functionally(hook: HookRecord, functional: set[int]) -> Words | None:
    if hook.owner.id not in functional:
        return None
    return Words(
        f"{_ran(hook)}, none with this parameter: functional_call put other tensors in its place",
        "params[name].register_hook(fn)  # on the tensors that are passed\n"
        "torch.func.functional_call(model, params, args)",
    )


torch_func = quoting("TH219")
not_compilable = quoting("TH221")

#: rules whose findings are no more than notes where others of the same line fired: a line that hooks many things may
#: hook some that this run does not need
OF_ONE_AMONG_MANY = (
    registered_too_late,
    not_on_the_way_to_the_loss,
    frozen,
    used_without_a_call,
    removed_before_it_could_fire,
    never_called,
    tensor_let_go,
)
