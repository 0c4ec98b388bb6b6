"""Checks what counts as a step, what happens around it, and that detaching during a step leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

import tenterhook as th


def sgd_of(module: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD(module.parameters(), lr=lr)


def backward(model: nn.Module, width: int = 2) -> None:
    model.zero_grad()
    model(torch.ones(1, width)).sum().backward()


# -- steps within steps, steps that raise -----------------------------------------------------------------------------


class ClosureInside(torch.optim.SGD):
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        loss = None if closure is None else closure()
        super().step()
        return loss


class ClosurePassedOn(torch.optim.SGD):
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        return super().step(closure)


@pytest.mark.parametrize("kind", [ClosureInside, ClosurePassedOn])
@pytest.mark.parametrize("with_closure", [True, False])
def test_a_subclass_that_calls_the_step_it_overrides_takes_one_step(kind, with_closure):
    sgd_of(nn.Linear(1, 1))  # after the first instance is created, the overridden step has hooks, too
    model = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = kind(model.parameters(), lr=1.0)
    rig = th.attach(model, [th.Hook("h", on="weight", at="grad_final", do=th.scale(0.5))], optimizer=optimizer)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        return loss

    for taken in (1, 2):
        if with_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        assert torch.equal(model.weight, torch.full((2, 2), -0.5 * taken))
        assert (rig.step_count, rig.ledger["h"].fired) == (taken, taken)


def test_an_update_after_a_step_that_raised_is_measured_from_the_step_itself():
    class Failing(torch.optim.SGD):
        fails = False

        def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
            if self.fails:
                raise ValueError("no step")
            return super().step(closure)

    model = nn.Linear(2, 2)
    optimizer = Failing(model.parameters(), lr=0.5)
    updates = []
    hook = th.Hook("u", on="bias", at="update", do=lambda u: updates.append(u.tolist()))
    rig = th.attach(model, [hook], optimizer=optimizer)
    nn.init.zeros_(model.bias)
    backward(model)
    optimizer.step()
    Failing.fails = True
    with pytest.raises(ValueError, match="no step"):
        optimizer.step()
    Failing.fails = False
    nn.init.zeros_(model.bias)
    optimizer.step()
    assert updates == [[-0.5, -0.5], [-0.5, -0.5]]
    assert rig.step_count == 2


def fails_once() -> Callable[[Tensor], Tensor]:
    calls = []

    def zero(g: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("first")
        return g * 0

    return zero


@pytest.mark.parametrize("do", [th.stats(), lambda u: None], ids=["together", "one by one"])
def test_an_update_of_a_parameter_that_the_step_reshapes_is_skipped_with_a_reason(do):
    class Grows(torch.optim.SGD):
        def step(self, closure: Callable[[], Tensor] | None = None) -> None:
            super().step(closure)
            model.bias.data = torch.cat([model.bias.data, torch.zeros(1)])

    model = nn.Linear(2, 3)
    optimizer = Grows(model.parameters(), lr=0.1)
    rig = th.attach(model, [th.Hook("u", on=["weight", "bias"], at="update", do=do)], optimizer=optimizer)
    model(torch.ones(1, 2)).sum().backward()
    with pytest.warns(RuntimeWarning, match=r"TH701.*'bias'.*\(the step changed the shape or the device of the"):
        optimizer.step()
    assert model.bias.shape == (4,)
    ledger = rig.ledger["u"]
    assert (ledger["weight"].fired, ledger["bias"].fired) == (1, 0)
    assert ledger["bias"].skipped == {"the step changed the shape or the device of the parameter": 1}


def test_a_hook_that_raised_in_one_step_fires_in_the_next_without_a_forward_of_the_root():
    model = nn.ModuleDict({"a": nn.Linear(2, 2)})
    optimizer = sgd_of(model)
    rig = th.attach(model, [th.Hook("h", on="a.weight", at="grad_final", do=fails_once())], optimizer=optimizer)
    backward(model["a"])
    with pytest.raises(th.HookError) as caught:
        optimizer.step()
    assert str(caught.value) == (
        "hook 'h' at grad_final on 'a.weight': its action fails_once.zero raised ValueError: first (step 0)\n"
        '  remedy: fix the action, or set on_error="mute" to continue without the hook'
    )
    assert isinstance(caught.value.__cause__, ValueError)
    for _ in range(3):
        backward(model["a"])
        optimizer.step()
    site = rig.ledger["h"]["a.weight"]
    assert (rig.step_count, site.fired, site.failed) == (3, 3, 1)


def test_a_step_that_is_tried_again_is_hooked_again():
    model = nn.Linear(2, 2, bias=False)
    optimizer = sgd_of(model)
    rig = th.attach(model, [th.Hook("h", on="weight", at="grad_final", do=fails_once())], optimizer=optimizer)
    before = model.weight.detach().clone()
    backward(model)
    with pytest.raises(th.HookError):
        optimizer.step()
    assert rig.step_count == 0
    optimizer.step()
    assert rig.step_count == 1
    assert torch.equal(model.weight, before)


# -- over="hook" ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("limit", [1e-3, 1.0, 1e6])
def test_clip_norm_over_the_hook_is_torch_clip_grad_norm_bit_for_bit(mlp, dtype, limit):
    mlp.to(dtype)
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    (mlp(x).square().sum() * 100).backward()
    plain = [p.grad.clone() for p in mlp.parameters()]
    torch.nn.utils.clip_grad_norm_(mlp.parameters(), limit)
    clipped = [p.grad.clone() for p in mlp.parameters()]
    assert all(map(torch.equal, plain, clipped)) == (limit == 1e6)
    for p, g in zip(mlp.parameters(), plain):
        p.grad = g
    optimizer = sgd_of(mlp)
    hook = th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(limit, over="hook"))
    th.attach(mlp, [hook], optimizer=optimizer)
    optimizer.step()
    assert all(torch.equal(p.grad, want) for p, want in zip(mlp.parameters(), clipped))


@pytest.mark.parametrize("phase", [None, "train", "any"])
def test_a_step_is_training_in_both_modes(phase):
    model = nn.Linear(2, 2)
    optimizer = sgd_of(model)
    clip = th.clip_norm(1e-3, over="hook")
    hook = th.Hook("h", on="**", at="grad_final", do=clip, when=th.When(phase=phase))
    rig = th.attach(model, [hook], optimizer=optimizer)
    backward(model)
    optimizer.step()
    model.eval()
    backward(model)
    optimizer.step()
    assert rig.ledger["h"].changed == 4
    assert rig.ledger["h"].skipped == {}


def test_a_step_has_no_evaluation_phase():
    model = nn.Linear(2, 2)
    hook = th.Hook("h", on="**", at="grad_final", do=th.stats(), when=th.When(phase="eval"))
    with pytest.raises(th.RefusedError) as error:
        th.attach(model, [hook], optimizer=sgd_of(model))
    assert str(error.value) == (
        "hook 'h' at grad_final: phase=\"eval\" selects no signal, because this point exists only in training\n"
        "  remedy: remove phase: the hook fires in every step, whether the model is in training or evaluation mode"
    )


@th.action("cannot_measure", at=["grad_final"], modifies=True, measure=lambda x: {"n": 1 / 0}, partials={"n": "sum"})
def cannot_measure(x: Tensor, ctx: th.Context, *, over: str = "hook") -> Tensor:
    return x * 0


def test_a_measure_that_raises_names_its_place():
    model = nn.Linear(2, 2)
    optimizer = sgd_of(model)
    th.attach(model, [th.Hook("h", on="**", at="grad_final", do=cannot_measure)], optimizer=optimizer)
    backward(model)
    with pytest.raises(th.HookError) as caught:
        optimizer.step()
    assert str(caught.value) == (
        "hook 'h' at grad_final on 'weight': its action cannot_measure raised ZeroDivisionError: division by zero "
        '(step 0)\n  remedy: fix the action, or set on_error="mute" to continue without the hook'
    )


def test_a_measure_that_raises_may_be_muted_and_leaves_the_gradients():
    model = nn.Linear(2, 2)
    optimizer = sgd_of(model)
    hook = th.Hook("h", on="**", at="grad_final", do=cannot_measure, on_error="mute")
    rig = th.attach(model, [hook], optimizer=optimizer)
    backward(model)
    with pytest.warns(
        RuntimeWarning, match="tenterhook muted a hook at one target. hook 'h' at grad_final on 'weight'"
    ):
        optimizer.step()
    assert rig.step_count == 1
    assert torch.equal(model.weight.grad, torch.ones(2, 2))


def test_a_hook_over_targets_of_two_optimizers_is_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    first, second = sgd_of(model[0]), sgd_of(model[1])
    clip = th.clip_norm(1.0, over="hook")
    with pytest.raises(th.RefusedError) as caught:
        th.attach(model, [th.Hook("h", on="**", at="grad_final", do=clip)], optimizer=[first, second])
    assert str(caught.value) == (
        "hook 'h' at grad_final: over=\"hook\" spans 2 optimizers, which step one after another\n"
        "  remedy: write one hook for each optimizer: optimizer.0, optimizer.1"
    )
    assert len(th.inventory(model, optimizer=[first, second])) == 0
    rig = th.attach(model, [th.Hook("h", on="1.*", at="grad_final", do=clip)], optimizer=[first, second])
    assert list(rig.ledger["h"]) == ["1.weight", "1.bias"]


# -- what counts as a step --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("scale", [1024.0, 1000.0])
def test_with_grad_scaler_the_run_is_the_bare_one_bit_for_bit_and_skipped_steps_do_not_count(fused, scale):
    def run(hooked: bool) -> tuple[Tensor, list[tuple[int, Tensor]], int]:
        torch.manual_seed(0)
        model = nn.Linear(16, 16)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        seen: list[tuple[int, Tensor]] = []
        hook = th.Hook("h", on="bias", at="grad_final", do=lambda g, ctx: seen.append((ctx.step, g.clone())))
        rig = th.attach(model, [hook] if hooked else [], optimizer=optimizer)
        data = torch.Generator().manual_seed(1)
        for i in range(5):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 16, generator=data)).sum() * (torch.inf if i == 2 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return model.weight.detach(), seen, rig.step_count

    bare, _, _ = run(hooked=False)
    hooked, seen, steps = run(hooked=True)
    assert torch.equal(bare, hooked)
    assert steps == 4
    assert [step for step, _ in seen] == [0, 1, 2, 3]
    for _, gradient in seen:
        torch.testing.assert_close(gradient, torch.full((16,), 4.0))


def test_the_step_that_dcp_fakes_to_create_optimizer_state_does_not_count():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    fired = []
    points = {"grad_final": "**", "update": "**", "step_pre": "*", "step_post": "*"}
    hooks = [th.Hook(at, on=on, at=at, do=lambda v, ctx: fired.append(ctx.point)) for at, on in points.items()]
    rig = th.attach(model, hooks, optimizer=optimizer)
    assert set(get_optimizer_state_dict(model, optimizer)["state"]) == {"weight", "bias"}
    assert (rig.step_count, fired) == (0, [])
    backward(model)
    optimizer.step()
    assert rig.step_count == 1
    assert fired == ["step_pre", "grad_final", "grad_final", "update", "update", "step_post"]


def test_a_first_step_at_learning_rate_zero_is_a_step():
    model = nn.Linear(2, 2)
    optimizer = sgd_of(model, lr=0.0)
    rig = th.attach(model, [th.Hook("h", on="weight", at="grad_final", do=th.stats())], optimizer=optimizer)
    backward(model)
    optimizer.step()
    assert (rig.step_count, rig.ledger["h"].fired) == (1, 1)


def test_without_an_optimizer_one_backward_over_two_forwards_is_one_step():
    model = nn.Linear(2, 2)
    rig = th.attach(model, [th.Hook("h", on="weight", at="grad", do=th.stats())])
    (model(torch.ones(1, 2)).sum() + model(torch.ones(1, 2)).sum()).backward()
    assert rig.step_count == 1
    assert rig.values("h")["weight"]["norm"] == 4.0


def test_a_forward_that_raises_ends_no_step():
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Tensor, fails: bool) -> Tensor:
            y = self.inner(x)
            if fails:
                raise ValueError("picky")
            return y

    model = Picky()
    rig = th.attach(model, [th.Hook("h", on="inner", at="output", do=th.stats())])
    with pytest.raises(ValueError, match="picky"):
        model(torch.ones(1, 2), fails=True)
    assert rig.step_count == 0
    with torch.no_grad():
        model(torch.ones(1, 2), fails=False)
    assert rig.step_count == 1


def test_the_user_may_define_a_step():
    model = nn.Linear(2, 2)
    rig = th.attach(model, [th.Hook("h", on="weight", at="grad", do=th.stats())])
    for steps in (1, 2):
        with rig.step():
            for _ in range(4):
                model(torch.ones(1, 2)).sum().backward()
        assert rig.step_count == steps
        assert rig.values("h")["weight"]["norm"] == 4.0
    model(torch.ones(1, 2)).sum().backward()
    assert rig.step_count == 2


def test_the_user_may_define_a_step_with_an_optimizer(mlp, sgd, train):
    rig = th.attach(mlp, [th.Hook("h", on="head.weight", at="grad_final", do=th.stats())], optimizer=sgd)
    with rig.step():
        train(mlp, sgd, 3)
    assert (rig.step_count, rig.ledger["h"].fired) == (1, 3)


# -- detaching during a step ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["step_pre", "grad_final", "update", "step_post"])
def test_detaching_inside_a_step_lets_foreign_hooks_run_and_leaves_nothing(at):
    model = nn.Linear(2, 2)
    optimizer = sgd_of(model)
    foreign = []

    def leave(*_: object) -> None:
        rig.detach()

    on = "weight" if at in ("grad_final", "update") else "*"
    rig = th.attach(model, [th.Hook("h", on=on, at=at, do=lambda value: leave())], optimizer=optimizer)
    optimizer.register_step_pre_hook(lambda *_: foreign.append("pre"))
    optimizer.register_step_post_hook(lambda *_: foreign.append("post"))
    backward(model)
    optimizer.step()
    assert foreign == ["pre", "post"]
    assert not rig.attached
    backward(model)
    optimizer.step()
    assert foreign == ["pre", "post", "pre", "post"]
    assert len(th.inventory(model)) == 0
    assert [f.ours for f in th.inventory(model, optimizer=optimizer)] == [(), ()]


def test_detaching_after_a_step_that_raised_leaves_nothing():
    model = nn.Linear(2, 2)
    optimizer = sgd_of(model)
    rig = th.attach(model, [th.Hook("h", on="weight", at="grad_final", do=fails_once())], optimizer=optimizer)
    backward(model)
    with pytest.raises(th.HookError):
        optimizer.step()
    rig.detach()
    assert len(th.inventory(model, optimizer=optimizer)) == 0


def test_an_id_is_free_again_once_its_rig_was_detached_inside_a_step():
    model = nn.Linear(2, 2)
    optimizer = sgd_of(model)
    rig = th.attach(model, [th.Hook("h", on="weight", at="grad_final", do=lambda g: rig.detach())], optimizer=optimizer)
    backward(model)
    optimizer.step()
    assert th.detach(model) == 0
    th.attach(model, [th.Hook("h", on="weight", at="grad", do=th.scale(0.0))], optimizer=optimizer)
    backward(model)
    assert torch.equal(model.weight.grad, torch.zeros(2, 2))


@pytest.mark.parametrize("when", [th.When(), th.When(every=2)])
def test_detaching_between_forward_and_backward_leaves_nothing_after_the_backward(when):
    model = nn.Linear(2, 2)
    rig = th.attach(model, [th.Hook("h", on=".", at="grad_output", do=th.scale(3.0), when=when)])
    backward(model)
    out = model(torch.ones(1, 2))
    rig.detach()
    model.zero_grad()
    out.sum().backward()
    assert torch.equal(model.weight.grad, torch.ones(2, 2))
    assert len(th.inventory(model)) == 0
    assert rig.step_count == 1
    assert rig.ledger["h"]["."].state == "idle"


def test_a_rig_that_was_detached_takes_no_more_changes():
    model = nn.Linear(2, 2)
    hooks = [th.Hook("h", on=".", at="output", do=th.scale(3.0)), th.Hook("t", on="**", at="value", do=th.scale(2.0))]
    later = th.Hook("later", on=".", at="output", do=th.scale(3.0))
    rig = th.attach(model, hooks)
    rig.detach()
    changes = [lambda: rig.mute("h"), lambda: rig.unmute("h"), lambda: rig.remove("h"), lambda: rig.add(later)]
    for change in changes:
        with pytest.raises(th.AttachedError) as caught:
            change()
        assert str(caught.value) == "the rig was detached\n  remedy: attach the plan again"
    assert len(th.inventory(model)) == 0
    value = torch.ones(1)
    assert th.tap(value, "p") is value


def test_a_replacement_that_is_refused_leaves_the_hook_it_was_to_replace():
    model = nn.Linear(2, 2)
    optimizer = sgd_of(model)
    rig = th.attach(model, [th.Hook("h", on="weight", at="grad", do=th.scale(0.0))])
    other = th.Hook("h", on="weight", at="grad", do=th.scale(2.0))
    with pytest.raises(th.ResolveError) as caught:
        th.attach(model, [other], optimizer=optimizer, clock="bogus", replace=True)
    assert str(caught.value) == "clock='bogus' is not one of the optimizers\n  remedy: name one of 'optimizer'"
    backward(model)
    assert torch.equal(model.weight.grad, torch.zeros(2, 2))
    assert rig.ledger["h"].fired == 1
    th.attach(model, [other], optimizer=optimizer, replace=True)
    backward(model)
    assert torch.equal(model.weight.grad, torch.full((2, 2), 2.0))
    assert list(rig.ledger) == []


@pytest.mark.parametrize("failing", ["head.weight", "body.weight"])
@pytest.mark.parametrize("cleared", [False, True])
def test_a_backward_pass_that_fails_is_not_taken_for_cleared_gradients(failing: str, cleared: bool) -> None:
    """Test statistics over three backward passes of one step, of which the second one fails."""
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("body", nn.Linear(2, 2))
    model.add_module("head", nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows: list[dict[str, float]] = []
    hook = th.Hook("norms", on="head.weight", at="grad_accumulated", do=th.stats())
    rig = th.attach(model, hook, optimizer=optimizer, sinks=[lambda values, step: rows.append(values)])
    seen = []

    def backward() -> None:
        model(torch.randn(3, 2)).square().mean().backward()

    def fail(parameter: torch.Tensor) -> None:
        raise ArithmeticError

    def note() -> None:
        seen.append(float(model.get_parameter("head.weight").grad.norm()))  # type: ignore[union-attr]

    backward()
    note()
    handle = model.get_parameter(failing).register_post_accumulate_grad_hook(fail)
    with pytest.raises(ArithmeticError):
        backward()
    note()
    handle.remove()
    if cleared:
        optimizer.zero_grad(set_to_none=False)
        seen.clear()
    backward()
    note()
    optimizer.step()
    rig.detach()
    assert rows[-1]["norms/head.weight/norm"] == pytest.approx(sum(one**2 for one in seen) ** 0.5)


def test_gradients_that_are_cleared_after_a_failed_pass_and_a_whole_one_are_noticed() -> None:
    """Test a single parameter, so that only its own gradient shows that it was cleared."""
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows: list[dict[str, float]] = []
    hook = th.Hook("norms", on="weight", at="grad_accumulated", do=th.stats())
    rig = th.attach(model, hook, optimizer=optimizer, sinks=[lambda values, step: rows.append(values)])

    def fail(parameter: torch.Tensor) -> None:
        raise ArithmeticError

    handle = model.weight.register_post_accumulate_grad_hook(fail)
    with pytest.raises(ArithmeticError):
        model(torch.ones(3, 2)).sum().backward()
    handle.remove()
    model(torch.ones(3, 2)).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    rig.detach()
    assert rows[-1]["norms/weight/norm"] == pytest.approx(18**0.5)
