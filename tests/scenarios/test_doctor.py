"""Examines the plain PyTorch programs of the questions, and checks the first finding of the doctor."""

import gc
import io
import json
import pickle
import runpy
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th

pytestmark = pytest.mark.programs

ONE = torch.ones(1, 1)


def number(value: float) -> Tensor:
    return torch.tensor(value, requires_grad=True)


def one_weight() -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def double(grad: Tensor) -> Tensor:
    return grad * 2


def healthy(exam: th.Exam) -> bool:
    return list(exam.findings) == [] and repr(exam.findings) == "no findings"


# -- W1 to W3: the hook modifies the gradient, but the number is unexpected --------------------------------------------


def test_w1_doubled_in_the_middle_is_doubled_at_the_leaf() -> None:
    bare, plain, ours = number(2.0), number(2.0), number(2.0)
    (3 * bare**2).backward()
    with th.examine() as exam:
        y = plain**2
        y.register_hook(lambda grad: grad * 2)
        (3 * y).backward()
    assert (bare.grad, plain.grad) == (12.0, 24.0)
    assert healthy(exam)
    assert (exam.hooks[0].fired, exam.hooks[0].changed) == (1, 1)
    th.hook(y := ours**2, th.scale(2.0))
    (3 * y).backward()
    assert ours.grad == 24.0


def test_w2_clamped_in_the_middle_is_not_clamped_at_the_leaf() -> None:
    plain, ours = number(10.0), number(10.0)
    with th.examine() as exam:
        y = plain**2
        y.register_hook(lambda grad: grad.clamp(-1.0, 1.0))
        (3 * y).backward()
    assert plain.grad == 20.0
    assert healthy(exam)
    th.hook(ours, th.clip_value(1.0))
    (3 * ours**2).backward()
    assert ours.grad == 1.0


def test_w3_two_uses_come_as_one_sum() -> None:
    plain, seen = number(2.0), []
    with th.examine() as exam:
        y = plain**2
        y.register_hook(lambda grad: seen.append(grad) or grad * 0.5)
        (3 * y + 2 * y).backward()
    assert seen == [5.0]
    assert plain.grad == 10.0
    assert healthy(exam)
    ours = number(2.0)
    handle = th.hook(y := ours**2, th.scale(0.5))
    (3 * y + 2 * y).backward()
    assert (ours.grad, handle.fired) == (10.0, 1)


# -- W4 to W8: the hook fired without an effect ------------------------------------------------------------------------


def test_w4_a_new_gradient_that_is_not_returned() -> None:
    def halve(grad: Tensor) -> None:
        grad = grad * 0.5

    plain, ours = number(2.0), number(2.0)
    with th.examine() as exam:
        y = plain**2
        y.register_hook(halve)
        (3 * y).backward()
    assert plain.grad == 12.0
    assert exam.findings[0].code == "TH301"
    assert exam.findings[0].remedy.endswith("return grad")
    handle = th.hook(y := ours**2, halve)
    (3 * y).backward()
    assert (ours.grad, handle.fired, handle.changed) == (12.0, 1, 0)


def test_w5_an_edit_in_place_reaches_a_sibling() -> None:
    def zero(grad: Tensor) -> None:
        grad.zero_()

    weights = torch.tensor([1.0, 2.0, 3.0])
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with th.examine() as exam:
        a.register_hook(zero)
        ((a + b) * weights).sum().backward()
    assert torch.equal(b.grad, torch.zeros(3))  # the correct gradient is 1, 2, 3
    assert exam.findings[0].code == "TH501"
    th.hook(a, zero)
    with pytest.raises(th.InPlaceError):
        ((a + b) * weights).sum().backward()


def test_w6_another_grad_input_leaves_the_weights_alone() -> None:
    plain, ours = one_weight(), one_weight()
    x = torch.ones(1, 1, requires_grad=True)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    with th.examine() as exam:
        plain.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0] * 0,))
        plain(x).sum().backward()
        optimizer.step()
    assert (x.grad, plain.weight.grad, plain.weight) == (0.0, 1.0, 0.5)
    assert exam.findings[0].code == "TH303"
    with th.hook(ours, th.scale(0.0), on="weight", at="grad"):
        ours(x).sum().backward()
    assert ours.weight.grad == 0.0


@pytest.mark.parametrize(
    ("more", "moved"), [({"weight_decay": 0.5}, -0.05), ({"momentum": 0.5}, -0.05)], ids=lambda given: str(given)
)
def test_w7_a_zero_gradient_and_the_weight_moves(more: dict[str, float], moved: float) -> None:
    def first_step() -> tuple[nn.Linear, torch.optim.Optimizer]:
        model = one_weight()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **more)
        if "momentum" in more:  # the momentum needs a first step
            model(ONE).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer

    plain, optimizer = first_step()
    before = plain.weight.item()
    with th.examine() as exam:
        plain.weight.register_hook(lambda grad: torch.zeros_like(grad))
        plain(ONE).sum().backward()
        optimizer.step()
    assert plain.weight.grad == 0.0
    assert plain.weight.item() - before == pytest.approx(moved)
    assert exam.findings[0].code == "TH304"
    assert f"0.05, because of {next(iter(more))}=0.5" in exam.findings[0].evidence
    ours, optimizer = first_step()
    with th.attach(ours, [th.Hook("zero", on="weight", at="grad", do=th.scale(0.0))], optimizer=optimizer) as rig:
        effect = th.effect(rig, ours(ONE).sum())
    assert (effect["weight"]["grad_final"].without, effect["weight"]["grad_final"].with_hooks) == (1.0, 0.0)
    assert effect["weight"]["update"].with_hooks.item() == pytest.approx(moved)
    assert (
        effect.verdict("weight")
        == f"the gradient is zero, but SGD still moves the parameter because of {next(iter(more))}=0.5"
    )


def test_w8_a_thousandfold_gradient_and_adam_steps_the_same() -> None:
    def trained(hook: Callable[[Tensor], Tensor] | None) -> float:
        model = one_weight()
        if hook is not None:
            model.weight.register_hook(hook)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(ONE).sum().backward()
            optimizer.step()
        return model.weight.item()

    with th.examine() as exam:
        scaled = trained(lambda grad: grad * 1000)
    assert scaled == pytest.approx(trained(None)) == pytest.approx(0.7)
    assert exam.findings[0].code == "TH305"
    ours = one_weight()
    optimizer = torch.optim.Adam(ours.parameters(), lr=0.1)
    with th.attach(ours, [th.Hook("x1000", on="weight", at="grad", do=th.scale(1000.0))], optimizer=optimizer) as rig:
        effect = th.effect(rig, ours(ONE).sum())
    assert (effect["weight"]["grad"].without, effect["weight"]["grad"].with_hooks) == (1.0, 1000.0)
    assert effect["weight"]["update"].difference.item() == pytest.approx(0.0, abs=1e-6)
    assert effect.verdict("weight").startswith("undone by Adam")


# -- W9: five reasons why a hook never fires ---------------------------------------------------------------------------


def test_w9_registered_after_the_backward() -> None:
    x = number(2.0)
    with th.examine() as exam:
        y = x**2
        (3 * y).backward()
        y.register_hook(double)
    assert (x.grad, exam.hooks[0].fired) == (12.0, 0)
    assert exam.findings[0].code == "TH201"


def test_w9_on_a_tensor_off_the_way_to_the_loss() -> None:
    x = number(2.0)
    with th.examine() as exam:
        y = x**2
        aside = y * 1.0
        aside.register_hook(double)
        (3 * y).backward()
    assert (x.grad, exam.hooks[0].fired) == (12.0, 0)
    assert exam.findings[0].code == "TH202"


def test_w9_on_a_parameter_that_is_frozen_then() -> None:
    model = net()
    with th.examine() as exam:
        model[0].weight.register_hook(double)
        model[0].weight.requires_grad_(False)
        model(torch.ones(1, 2)).sum().backward()
    assert (model[0].weight.grad, exam.hooks[0].fired) == (None, 0)
    assert exam.findings[0].code == "TH203"
    with pytest.raises(th.DormantError, match="frozen"):
        th.hook(model, double, on="0.weight", at="grad")


def test_w9_on_a_parameter_that_is_frozen_already() -> None:
    model = net()
    model[0].weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match="doesn't require gradient"), th.examine() as exam:
        model[0].weight.register_hook(double)
    assert exam.findings[0].code == "TH103"


def test_w9_under_no_grad() -> None:
    model = nn.Sequential(one_weight(), one_weight())
    with th.examine() as exam:
        model[0].weight.register_hook(double)
        with torch.no_grad():
            hidden = model[0](ONE)
        model[1](hidden).sum().backward()
    assert (model[0].weight.grad, model[1].weight.grad, exam.hooks[0].fired) == (None, 1.0, 0)
    assert exam.findings[0].code == "TH204"


def test_w9_under_no_grad_to_the_loss() -> None:
    model = one_weight()
    with pytest.raises(RuntimeError, match="does not require grad"), th.examine() as exam:
        model.weight.register_hook(double)
        with torch.no_grad():
            loss = model(ONE).sum()
        loss.backward()
    assert exam.findings[0].code == "TH204"


def test_w9_on_a_name_that_is_another_tensor_s_then() -> None:
    x = number(2.0)
    with th.examine() as exam:
        y = x**2
        y.register_hook(double)
        y = x**3
        y.backward()
    assert (x.grad, exam.hooks[0].fired) == (12.0, 0)
    assert exam.findings[0].code == "TH217"


# -- W10: another model ------------------------------------------------------------------------------------------------


def test_w10_the_loss_of_the_reloaded_model() -> None:
    model = net()
    with th.examine() as exam:
        model[0].weight.register_hook(double)
        reloaded = net()
        reloaded.load_state_dict(model.state_dict())
        reloaded(torch.ones(1, 2)).sum().backward()
    assert (model[0].weight.grad, exam.hooks[0].fired) == (None, 0)
    assert exam.findings[0].code == "TH206"
    with th.attach(model, [th.Hook("double", on="0.weight", at="grad", do=double)]) as rig:
        reloaded(torch.ones(1, 2)).sum().backward()
        assert rig.ledger["double"].fired == 0


# -- D1 to D6: hooks on live tensors -----------------------------------------------------------------------------------


def test_d1_the_norm_of_a_gradient() -> None:
    x, norms = torch.ones(2, 2, requires_grad=True), []
    with th.examine() as exam:
        x.register_hook(lambda grad: norms.append(grad.norm()))
        (2 * x).sum().backward()
    assert norms == [4.0]
    assert torch.equal(x.grad, torch.full((2, 2), 2.0))
    assert healthy(exam)
    handle = th.hook(y := torch.ones(2, 2, requires_grad=True), lambda grad: norms.append(grad.norm()))
    (2 * y).sum().backward()
    assert (norms, handle.fired, handle.changed) == ([4.0, 4.0], 1, 0)


def test_d2_a_product_is_not_a_leaf() -> None:
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="not a leaf"), th.examine() as exam:
        leaf = torch.randn(2, 2, requires_grad=True)
        x = leaf * 10
        x.register_hook(lambda grad: grad.clamp(-1.0, 1.0))
        (x**2).sum().backward()
        shown = x.grad
    assert shown is None
    assert torch.equal(leaf.grad, 10 * (2 * x.detach()).clamp(-1.0, 1.0))  # the clamp applies to the leaf
    assert leaf.grad.abs().max() == 10.0
    assert exam.findings[0].code == "TH307"
    th.hook(leaf, th.clip_value(1.0))
    leaf.grad = None
    ((leaf * 10) ** 2).sum().backward()
    assert leaf.grad.abs().max() == 1.0


@pytest.mark.parametrize(("start", "gradient"), [(1.0, 6.0), (-1.0, 1.5)])
def test_d3_by_the_sign_of_the_value(start: float, gradient: float) -> None:
    def by_sign(value: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda grad: grad * (2.0 if (value > 0).all() else 0.5 if (value < 0).all() else 1.0)

    plain, ours = number(start), number(start)
    with th.examine() as exam:
        y = 3 * plain
        y.register_hook(by_sign(y.detach()))
        y.backward()
    assert plain.grad == gradient
    assert healthy(exam)
    th.hook(y := 3 * ours, lambda grad, ctx: by_sign(ctx.value)(grad))
    y.backward()
    assert ours.grad == gradient


def test_d3_a_closure_over_the_tensor_keeps_its_graph() -> None:
    def step() -> weakref.ref[Tensor]:
        y = 3 * number(1.0)
        y.register_hook(lambda grad: grad * 2 if (y > 0).all() else grad)
        y.backward()
        return weakref.ref(y)

    with th.examine() as exam:
        kept = step()
    gc.collect()
    assert kept() is not None
    assert exam.findings[0].code == "TH502"


def test_d4_a_tensor_used_twice_fires_once() -> None:
    seen: list[Tensor] = []
    with th.examine() as exam:
        y = 2 * number(1.0)
        y.register_hook(lambda grad: seen.append(grad))
        (3 * y + 4 * y).backward()
    assert seen == [7.0]
    assert healthy(exam)
    handle = th.hook(y := 2 * number(1.0), seen.append)
    (3 * y + 4 * y).backward()
    assert (seen, handle.fired) == ([7.0, 7.0], 1)


def test_d5_a_tensor_hook_is_added_and_removed_at_once() -> None:
    x = number(1.0)
    with th.examine() as exam:
        y = 2 * x
        first = y.register_hook(lambda grad: grad * 10)
        y.backward(retain_graph=True)
        first.remove()
        y.backward()
    assert x.grad == 22.0
    assert healthy(exam)


def test_d5_a_module_s_backward_hook_waits_for_the_next_forward() -> None:
    model, seen = one_weight(), []
    x = torch.ones(1, 1, requires_grad=True)
    with th.examine() as exam:
        loss = model(x).sum()
        model.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_input))
        loss.backward()
    assert seen == []
    assert exam.findings[0].code == "TH201"


def test_d5_a_module_s_backward_hook_that_was_removed_still_fires() -> None:
    model, seen = one_weight(), []
    x = torch.ones(1, 1, requires_grad=True)
    with th.examine() as exam:
        handle = model.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_input))
        loss = model(x).sum()
        handle.remove()
        loss.backward()
    assert len(seen) == 1
    assert exam.findings[0].code == "TH410"
    handle = th.hook(model, seen.append, on=".", at="grad_input")
    loss = model(x).sum()
    handle.remove()
    loss.backward()
    assert len(seen) == 1


def test_d6_three_clipped_backwards_make_three_times_the_limit() -> None:
    plain, ours = one_weight(), one_weight()
    with th.examine() as exam:
        plain.weight.register_hook(lambda grad: grad.clamp(-1.0, 1.0))
        for _ in range(3):
            (5 * plain(ONE)).sum().backward()
    assert plain.weight.grad == 3.0
    assert exam.findings[0].code == "TH401"
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1)
    with th.hook(ours, th.clip_value(1.0), on="weight", at="grad_final", optimizer=optimizer):
        for _ in range(3):
            (5 * ours(ONE)).sum().backward()
        optimizer.step()
    assert ours.weight.grad == 1.0


# -- P: persistence ----------------------------------------------------------------------------------------------------


def through_torch(saved: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file, **options)


def test_p1_a_tensor_has_no_register_backward_hook() -> None:
    model = net()
    with pytest.raises(AttributeError, match="register_backward_hook"), th.examine() as exam:
        dict(model.named_parameters())["0.weight"].register_backward_hook(double)
    assert exam.findings[0].code == "TH106"
    assert "tensor.register_hook(fn)" in exam.findings[0].remedy
    with th.hook(model, double, on="0.weight", at="grad") as handle:
        model(torch.ones(1, 2)).sum().backward()
        assert handle.changed == 1


def test_p2_a_type_name_from_the_checkpoint_is_evaluated(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "from torch import nn, ones\n"
        "model = nn.Linear(2, 1)\n"
        "ran, checkpoint = [], {'hooked_type': 'ran.append(1) or nn.Linear'}\n"
        "hooked = eval(checkpoint['hooked_type'])\n"
        "for module in model.modules():\n"
        "    if isinstance(module, hooked):\n"
        "        module.register_forward_hook(lambda module, args, out: out * 2)\n"
        "model(ones(1, 2)).sum().backward()\n"
    )
    with th.examine() as exam:
        left = runpy.run_path(str(program))
    assert left["ran"] == [1]  # code from the checkpoint
    assert (exam.findings[0].code, exam.findings[0].place) == ("TH603", f"{program}:4")
    text = json.dumps({"hooks": [{"id": "h", "on": "type:Linear", "at": "output", "do": "stats"}], "tenterhook": 1})
    with th.attach(left["model"], th.Plan.from_json(text)) as rig:
        assert list(rig.ledger["h"]) == ["."]


@dataclass
class Kept:
    path: str
    fn: Callable[[Tensor], Tensor]


def test_p3_an_object_with_the_function_and_the_path() -> None:
    model = net()
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"), th.examine() as exam:
        model[0].weight.register_hook(double)
        through_torch({"hook": Kept("0.weight", double)})
    assert exam.findings[0].code == "TH604"
    with th.attach(model, [th.Hook("double", on="0.weight", at="grad", do=th.scale(2.0))]) as rig:
        assert {type(value) for value in through_torch(rig.state_dict()).values()} == {Tensor}


def test_p8_a_loaded_handle_restores_nothing() -> None:
    model, fresh, bare = net(), net(), net()
    with th.examine() as exam:
        handle = model[0].weight.register_hook(double)
        back = through_torch({"handle": handle}, weights_only=False)["handle"]
        fresh(torch.ones(1, 2)).sum().backward()
    bare(torch.ones(1, 2)).sum().backward()
    assert torch.equal(fresh[0].weight.grad, bare[0].weight.grad)
    assert back.hooks_dict_ref() is not model[0].weight._backward_hooks
    assert exam.findings[0].code == "TH107"
    with th.attach(model, [th.Hook("double", on="0.weight", at="grad", do=th.scale(2.0))]) as rig:
        state = rig.state_dict()
    with th.restore(fresh, state) as rig:
        fresh(torch.ones(1, 2)).sum().backward()
        assert rig.ledger["double"].fired == 1


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
def test_p9_the_legacy_backward_hook() -> None:
    layer, shapes = nn.Linear(10, 5), []
    x = torch.ones(1, 10, requires_grad=True)
    with th.examine() as exam:
        layer.register_backward_hook(lambda module, grad_input, grad_output: shapes.extend(g.shape for g in grad_input))
        layer(x).sum().backward()
    assert shapes == [(5,), (1, 10), (10, 5)]
    assert exam.findings[0].code == "TH601"
    seen: list[Tensor] = []
    x.grad = None
    with th.hook(fresh := nn.Linear(10, 5), seen.append, on=".", at="grad_input"):
        fresh(x).sum().backward()
    assert torch.equal(seen[0], x.grad)


def test_p10_a_function_of_one_argument_on_a_module() -> None:
    model = net()
    x = torch.ones(1, 2, requires_grad=True)
    with pytest.raises(TypeError, match="positional argument"), th.examine() as exam:
        model[0].register_full_backward_hook(lambda grad: grad * 2)
        model(x).sum().backward()
    assert exam.findings[0].code == "TH507"
    assert exam.findings[0].remedy == "def fn(module, grad_input, grad_output): ..."
    with th.hook(net(), double, on="0", at="grad_input"):  # here, one argument is correct
        pass
    with pytest.raises(th.ActionError, match="takes 3 arguments"):
        th.hook(net(), lambda module, grad_input, grad_output: None, on="0", at="grad_input")


# -- B12: retain_graph in every step -----------------------------------------------------------------------------------


def test_b12_every_backward_retains_its_graph() -> None:
    model = one_weight()
    norms: list[Tensor] = []
    with th.examine() as exam:
        model.weight.register_hook(lambda grad: norms.append(grad.norm()))
        for _ in range(3):
            loss = model(ONE).square().sum()
            loss.backward(retain_graph=True)
    assert norms == [2.0, 2.0, 2.0]
    assert exam.findings[0].code == "TH504"
    loss.backward()  # the graph exists until the loss is freed
    assert model.weight.grad == 8.0
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()
