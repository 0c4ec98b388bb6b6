"""Check the full text of every error: where it happened, what happened, and what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th
from tests.conftest import MLP


def attach(model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None, **hook: object) -> th.Rig:
    return th.attach(model, [th.Hook("h", **hook)], optimizer=optimizer)


def backward(model: nn.Module) -> None:
    model(torch.ones(1, 4)).sum().backward()


REGISTRY = th.Registry()


@th.action("returns", registry=REGISTRY)
def returns(x: Tensor) -> Tensor:
    return x


@th.action("spills", registry=REGISTRY)
def spills(x: Tensor, ctx: th.Context) -> None:
    ctx.emit("all", x)


def own(model: nn.Module, action: th.Action) -> None:
    th.attach(model, th.Hook("h", on="head", at="output", do=action, on_error="raise"), actions=REGISTRY)
    backward(model)


def raising(g: Tensor) -> None:
    raise ValueError("no good")


def three(a: Tensor, b: Tensor, c: Tensor) -> None: ...


def stacked() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))


#: another model
BESIDE = nn.ModuleDict({"head": nn.Linear(3, 3)})

CASES: dict[str, tuple[type[th.TenterhookError], Callable[[MLP, torch.optim.Optimizer], object], str]] = {
    "no match": (
        th.NoMatchError,
        lambda m, o: attach(m, on="heed.weight", at="grad", do=th.scale(1.0)),
        "hook 'h' at grad: no parameter is named 'heed.weight'\n"
        "  remedy: use one of the nearest names: 'head.weight'",
    ),
    "updates without an optimizer": (
        th.UnknownHookError,
        lambda m, o: th.watch(m).values("updates"),
        "hook 'updates': the rig has no hook with this id\n"
        "  remedy: use one of these ids: grads, outputs; watch adds 'updates' only if you pass an optimizer",
    ),
    "the state of another model": (
        th.MismatchError,
        lambda m, o: attach(m, on="head.weight", at="grad", do=th.stats()).load_state_dict(
            attach(BESIDE, on="head.weight", at="grad", do=th.stats()).state_dict()
        ),
        "the saved state does not fit: 1 difference\n"
        "  hook 'h' on 'head.weight': saved as float32[3, 3], but it is now float32[2, 8]\n"
        "  remedy: no target fits; load the state into the model that it was saved for, or pass rename= if only names "
        "changed",
    ),
    "expect": (
        th.ExpectError,
        lambda m, o: attach(m, on="blocks.*", at="output", do=th.stats(), expect=3),
        "hook 'h' at output: found 2 targets, expected 3: blocks.0, blocks.1\n"
        "  remedy: correct `on`, or write expect=2",
    ),
    "dormant": (
        th.DormantError,
        lambda m, o: (m.head.requires_grad_(False), attach(m, on="head.bias", at="grad", do=th.stats())),
        "hook 'h' at grad on 'head.bias': the hook cannot fire because the target is frozen\n"
        "  remedy: set requires_grad=True, or use a pattern, so that the hook is dormant until the parameter is "
        "unfrozen",
    ),
    "never called": (
        th.DormantError,
        lambda m, o: attach(m, on="blocks", at="output", do=th.stats()),
        "hook 'h' at output on 'blocks': the hook cannot fire because the target is a container that is never called\n"
        "  remedy: name the modules inside the container",
    ),
    "not in an optimizer": (
        th.DormantError,
        lambda m, o: attach(m, on="head.bias", at="update", do=th.stats(),
                            optimizer=torch.optim.SGD([m.first.weight], lr=0.1)),
        "hook 'h' at update on 'head.bias': the hook cannot fire because the target is not in an optimizer\n"
        "  remedy: pass the optimizer of this parameter to attach, or use grad_accumulated",
    ),
    "a parameter instead of a module": (
        th.NoMatchError,
        lambda m, o: attach(m, on="head.bias", at="grad_input", do=th.stats()),
        "hook 'h' at grad_input: no module is named 'head.bias'; that is the name of a parameter\n"
        "  remedy: name the module 'head', or use a parameter point such as grad",
    ),
    "a module instead of a parameter": (
        th.NoMatchError,
        lambda m, o: attach(m, on="head", at="grad", do=th.stats()),
        "hook 'h' at grad: no parameter is named 'head'; that is the name of a module\n"
        "  remedy: to select the parameters of the module, write 'head.**'",
    ),
    "the root instead of its parameters": (
        th.NoMatchError,
        lambda m, o: attach(m, on=".", at="grad", do=th.stats()),
        "hook 'h' at grad: no parameter is named '.'; that is the name of a module\n"
        "  remedy: to select the parameters of the module, write '**'",
    ),
    "modules instead of parameters": (
        th.NoMatchError,
        lambda m, o: attach(m, on="blocks.*", at="grad", do=th.stats()),
        "hook 'h' at grad: no parameter matches 'blocks.*'\n"
        "  remedy: to select the parameters of the module, write 'blocks.*.**'",
    ),
    "a class with a wrong letter": (
        th.NoMatchError,
        lambda m, o: attach(m, on="type:Liner", at="output", do=th.stats()),
        "hook 'h' at output: no module matches 'type:Liner'\n"
        "  remedy: use a class of the model, such as 'type:Linear'",
    ),
    "a class that the model does not have": (
        th.NoMatchError,
        lambda m, o: attach(m, on="type:Conv2d", at="output", do=th.stats()),
        "hook 'h' at output: no module matches 'type:Conv2d'\n"
        "  remedy: use a class of the model, such as 'type:Linear', 'type:MLP', 'type:ModuleList'",
    ),
    "a regular expression": (
        th.NoMatchError,
        lambda m, o: attach(m, on=r"blocks\.\d+", at="output", do=th.stats()),
        "hook 'h' at output: no module is named 'blocks\\\\.\\\\d+'\n"
        "  remedy: write 'blocks.*', which matches 2 modules; a pattern is not a regular expression: * matches within "
        "a part of a name, ** across parts",
    ),
    "the end of a name": (
        th.NoMatchError,
        lambda m, o: attach(m, on="weight", at="grad", do=th.stats()),
        "hook 'h' at grad: no parameter is named 'weight'\n"
        "  remedy: write '**.weight' to select every parameter whose name ends with it",
    ),
    "a tensor": (
        th.PlanError,
        lambda m, o: attach(m, on=m.head.weight, at="grad", do=th.stats()),
        "hook 'h' at grad: on= is a tensor of class Parameter, not a name\n"
        "  remedy: write its name as in model.named_parameters(), or hook the tensor itself: th.hook(tensor, fn)",
    ),
    "another choice": (
        th.ActionError,
        lambda m, o: th.clip_norm(1.0, over="global"),
        "clip_norm: over='global': over must be one of 'target', 'hook'\n"
        '  remedy: write over="hook" for one norm over all targets of the hook, or over="target" for one norm for each '
        "target",
    ),
    "another parameter": (
        th.ActionError,
        lambda m, o: th.clip_norm(max_norm=1.0),
        "clip_norm has no parameter 'max_norm'; the nearest is 'max'\n"
        "  remedy: write max instead of max_norm: clip_norm(max, over='target')",
    ),
    "an action instead of a plan": (
        th.PlanError,
        lambda m, o: th.attach(m, th.stats()),
        "a plan is a list of hooks, but an object of type Action was passed\n"
        '  remedy: write [th.Hook("id", on=..., at=..., do=...)]',
    ),
    "an unknown id in the ledger": (
        th.UnknownHookError,
        lambda m, o: attach(m, on="**", at="grad", do=th.stats()).ledger["g"],
        "hook 'g': the rig has no hook with this id\n  remedy: use one of these ids: h",
    ),
    "an unknown id in a plan": (
        th.UnknownHookError,
        lambda m, o: th.Plan([])["g"],
        "hook 'g': the plan has no hook with this id\n  remedy: use one of these ids: none (the plan has no hooks)",
    ),
    "no optimizer": (
        th.RefusedError,
        lambda m, o: attach(m, on="**", at="grad_final", do=th.stats()),
        "hook 'h' at grad_final: this point needs an optimizer, but none was passed\n"
        "  remedy: pass optimizer=optimizer, or use grad_accumulated",
    ),
    "wrong point": (
        th.RefusedError,
        lambda m, o: attach(m, on="**", at="output", do=th.reverse()),
        "hook 'h' at output: the action 'reverse' is not available at this point\n"
        "  remedy: use one of the action's points: grad_output, grad_input",
    ),
    "over the hook": (
        th.RefusedError,
        lambda m, o: attach(m, on="**", at="grad", do=th.clip_norm(1.0, over="hook")),
        "hook 'h' at grad: over=\"hook\" needs the gradients of all targets at once\n"
        "  remedy: use grad_final, where all gradients are available",
    ),
    "a named action at a state dict": (
        th.RefusedError,
        lambda m, o: attach(m, on="head", at="save_post", do=th.stats()),
        "hook 'h' at save_post: the action 'stats' takes a tensor, but the value at this point is the state dict that "
        "was saved\n"
        '  remedy: to reach the tensors in a state dict, pass a function that takes the dict: at="save_post", do=fn',
    ),
    "compiled": (
        th.RefusedError,
        lambda m, o: attach(torch.compile(m, backend="eager"), on="head", at="grad_input", do=th.stats()),
        "hook 'h' at grad_input on 'head': compiled code calls this module, so the contribution of one call to "
        "the gradient of its input is not available\n"
        "  remedy: use grad_output on the previous module, or attach to the uncompiled model",
    ),
    "tap in compiled code": (
        th.RefusedError,
        lambda m, o: attach(torch.compile(m, backend="eager"), on="**:probs", at="value", do=th.stats()),
        "hook 'h' at value: the model is compiled, but taps do not exist in compiled code\n"
        "  remedy: use output or grad_output on a module, or attach to the uncompiled model",
    ),
    "taps counted": (
        th.RefusedError,
        lambda m, o: attach(m, on="**:probs", at="value", do=th.stats(), expect=2),
        "hook 'h' at value: taps are found when they run, so their number is not known yet\n  remedy: remove expect",
    ),
    "no gradient": (
        th.RefusedError,
        lambda m, o: th.hook(torch.ones(2), th.scale(2.0)),
        "hook 'scale(by=2.0)' at value_grad: the tensor does not require a gradient, so it never receives one\n"
        "  remedy: call requires_grad_() on the tensor before you use it",
    ),
    "a wrong point without a target": (
        th.PlanError,
        lambda m, o: th.hook(m, th.stats(), at="grd"),
        "hook 'stats': the point 'grd' does not exist; the nearest is 'grad'\n"
        '  remedy: write at="grad", or run `tenterhook points` to list all points',
    ),
    "which targets": (
        th.RefusedError,
        lambda m, o: th.hook(m, th.scale(2.0), at="grad"),
        'at grad: the targets are missing\n  remedy: pass on="...", or on="**" for all targets',
    ),
    "changed its own input in place": (
        th.RefusedError,
        lambda m, o: ((s := stacked()), attach(s, on="1", at="grad_input", do=th.scale(2.0)), backward(s)),
        "hook 'h' at grad_input on '1': the module changes its own input in place, so the gradient is not available\n"
        "  remedy: avoid the in-place operation, for example with inplace=False, or use grad_output of the previous "
        "module",
    ),
    "clock": (
        th.ResolveError,
        lambda m, o: th.attach(m, [], optimizer=o, clock="other"),
        "clock='other' is not one of the optimizers\n  remedy: name one of 'optimizer'",
    ),
    "already attached": (
        th.AttachedError,
        lambda m, o: [attach(m, on="head", at="output", do=th.stats()) for _ in range(2)],
        "hook 'h': the model already has a hook with this id\n"
        "  remedy: pass replace=True to replace it, or call th.detach(model) to remove all hooks",
    ),
    "not attached": (
        th.UnknownHookError,
        lambda m, o: attach(m, on="head", at="output", do=th.stats()).mute("g"),
        "hook 'g': the rig has no hook with this id\n  remedy: use one of these ids: h",
    ),
    "the action raised": (
        th.HookError,
        lambda m, o: (attach(m, on="head.weight", at="grad", do=raising), backward(m)),
        "hook 'h' at grad on 'head.weight': its action raising raised ValueError: no good (step 0)\n"
        '  remedy: fix the action, or set on_error="mute" to continue without the hook',
    ),
    "another shape": (
        th.ContractError,
        lambda m, o: (attach(m, on="head.weight", at="grad", do=torch.sum), backward(m)),
        "hook 'h' at grad on 'head.weight': _VariableFunctionsClass.sum returned float32() on cpu, but the value was "
        "float32(2, 8) on cpu\n"
        "  remedy: return a tensor of the same shape, dtype, device and layout",
    ),
    "another dtype": (
        th.ContractError,
        lambda m, o: (attach(m, on="head", at="output", do=Tensor.double), m(torch.ones(1, 4))),
        "hook 'h' at output on 'head': TensorBase.double returned float64(1, 2) on cpu, but the value was "
        "float32(1, 2) on cpu\n"
        "  remedy: return a tensor of the same shape, dtype, device and layout",
    ),
    "not a tensor": (
        th.ContractError,
        lambda m, o: (attach(m, on="head.weight", at="grad", do=Tensor.tolist), backward(m)),
        "hook 'h' at grad on 'head.weight': TensorBase.tolist returned a value of type list, not a tensor\n"
        "  remedy: return the new tensor, or return nothing to keep the value",
    ),
    "only observed": (
        th.ContractError,
        lambda m, o: (attach(m, on="head.weight", at="update", do=lambda u: u * 2, optimizer=o), backward(m), o.step()),
        "hook 'h' at update on 'head.weight': <lambda>.<lambda> returned a tensor, but this point can only be "
        "observed\n  remedy: return nothing, or use grad or grad_final to change a gradient",
    ),
    "nothing to replace": (
        th.ContractError,
        lambda m, o: (attach(m, on="head", at="save_post", do=lambda sd: sd), m.state_dict()),
        "hook 'h' at save_post on 'head': the action returned a value of type OrderedDict, but this point does not "
        "replace its value\n  remedy: change the dict in place and return nothing",
    ),
    "value not kept": (
        th.ContractError,
        lambda m, o: (attach(m, on="head", at="grad_output", do=lambda g, ctx: g * ctx.value), backward(m)),
        "hook 'h' at grad_output on 'head': the value was not kept for this action\n"
        "  remedy: register the action with @th.action(..., needs_value=True). Keeping the value costs memory",
    ),
    "in place": (
        th.InPlaceError,
        lambda m, o: (attach(m, on="head.weight", at="grad", do=Tensor.zero_), backward(m)),
        "hook 'h' at grad on 'head.weight': the action changed the value in place, which can corrupt other tensors "
        "that share its memory\n  remedy: return a new tensor, for example x * 2 instead of x.mul_(2)",
    ),
    "an observer that returns": (
        th.ReturnError,
        lambda m, o: own(m, returns()),
        "hook 'h' at output on 'head': returns is an observer, but returned a value of type Tensor\n"
        "  remedy: return nothing, or register the action with modifies=True",
    ),
    "more than a number": (
        th.ContractError,
        lambda m, o: own(m, spills()),
        "hook 'h' at output on 'head': emit received a tensor of shape (1, 2)\n"
        "  remedy: emit one number, such as x.norm() or x.mean()",
    ),
    "no target in an optimizer": (
        th.DormantError,
        lambda m, o: attach(m, on="**", at="grad_final", do=th.stats(),
                            optimizer=torch.optim.SGD(MLP().parameters(), lr=0.1)),
        "hook 'h' at grad_final: none of the hook's 8 targets is in an optimizer that was passed to attach\n"
        "  remedy: call attach with the optimizer that trains this model",
    ),
    "not an optimizer": (
        th.ResolveError,
        lambda m, o: th.attach(m, [], optimizer=m.parameters()),
        "optimizer= received an object of type generator\n  remedy: pass an Optimizer, or a list or dict of optimizers",
    ),
    "not a module": (
        th.ResolveError,
        lambda m, o: th.attach(o, []),
        "the model must be a module, but its type is SGD\n"
        "  remedy: write th.attach(model, plan, optimizer=...)",
    ),
    "a path for a plan": (
        th.ResolveError,
        lambda m, o: th.attach(m, "plan.json"),
        "the plan must be a Plan or hooks, but it is the text 'plan.json'\n"
        "  remedy: load the file with th.Plan.load(path)",
    ),
    "neither tensor nor module": (
        th.RefusedError,
        lambda m, o: th.hook(3, print),
        "an object of type int cannot be hooked\n  remedy: pass a tensor or a module first: th.hook(y, fn)",
    ),
    "a word the contract does not know": (
        th.ActionError,
        lambda m, o: th.action("xx", modifes=True),
        "the action 'xx' does not accept modifes=; the nearest is modifies=\n"
        "  remedy: use one of at, modifies, elementwise, needs_value, version, measure, partials, state, trigger",
    ),
    "arity": (
        th.ActionError,
        lambda m, o: attach(m, on="head", at="grad_output", do=three),
        f"hook 'h' at grad_output: three at {__file__}:{three.__code__.co_firstlineno} takes 3 arguments, "
        "but an action takes 1 or 2\n  remedy: write fn(value) or fn(value, ctx). The arguments of a PyTorch hook are "
        "not passed: ctx.target is the name of the target",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_text(case, mlp, sgd):
    kind, provoke, text = CASES[case]
    with pytest.raises(kind) as error:
        provoke(mlp, sgd)
    assert type(error.value) is kind
    assert str(error.value) == text
    assert error.value.remedy and error.value.remedy in text


def test_every_class_is_shown_here_or_with_its_own_kind():
    elsewhere = {th.TenterhookError, th.PlanError, th.PlanFileError, th.NonFiniteError, th.StateError, th.MismatchError,
                 th.RanksError, th.StoreError}  # fmt: skip
    shown = {kind for kind, _, _ in CASES.values()} | elsewhere
    assert shown == {e for name in th.__all__ if isinstance(e := getattr(th, name), type) and issubclass(e, Exception)}


def test_a_muted_site_is_said(mlp, sgd):
    rig = th.attach(mlp, th.Hook("h", on="head.weight", at="grad", do=raising, on_error="mute"))
    with pytest.warns(RuntimeWarning) as warned:
        backward(mlp)
    assert str(warned[0].message) == (
        "tenterhook muted a hook at one target. hook 'h' at grad on 'head.weight': its action raising raised "
        'ValueError: no good (step 0)\n  remedy: fix the action, or set on_error="raise" to stop training instead'
    )
    assert rig.ledger["h"]["head.weight"].state == "dormant" and rig.ledger["h"].failed == 1
    assert str(rig).splitlines()[3].split()[5] == "muted"


def test_an_optimizer_that_is_gone_is_said(mlp, sgd):
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    rig = th.attach(mlp, th.Hook("h", on="**", at="grad_final", do=th.stats()), optimizer=optimizer)
    del optimizer
    with pytest.warns(RuntimeWarning) as warned:
        backward(mlp)
    assert str(warned[0].message) == (
        "tenterhook: the 'optimizer' given to attach no longer exists, so hooks cannot observe its steps\n"
        "  remedy: attach again with the optimizer that now trains the model"
    )
    backward(mlp)
    assert rig.step_count == 0


def test_a_site_that_never_fired_is_named_below_the_table(sgd):
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("out", on="**", at="output", do=th.stats()), optimizer=optimizer)
    model(torch.ones(1, 2, 8)).sum().backward()
    optimizer.step()
    assert "never fired: out on self_attn.out_proj" in str(rig)


def test_the_cause_of_a_failed_action_is_chained(mlp):
    attach(mlp, on="head.weight", at="grad", do=raising)
    with pytest.raises(th.HookError) as error:
        backward(mlp)
    assert isinstance(error.value.__cause__, ValueError)
    assert (error.value.hook, error.value.target, error.value.point) == ("h", "head.weight", "grad")
