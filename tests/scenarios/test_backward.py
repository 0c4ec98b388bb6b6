"""Compares plain PyTorch with tenterhook on the questions B1 to B11: backward, retain_graph and every kind of hook."""

import gc
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

import tenterhook as th
from tenterhook.cli import main


def one_weight() -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(2, 2)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))


ONE = torch.ones(1, 1)


# -- B1: retain_graph --------------------------------------------------------------------------------------------------


def test_b1_a_second_backward_needs_the_graph() -> None:
    for attached in (False, True):
        x = torch.tensor(1.0, requires_grad=True)
        if attached:
            handle = th.hook(x, lambda g: None)
        y = x**2
        y.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.backward()
        assert x.grad == 2.0
    assert handle.fired == 1


def test_b1_with_retain_graph_the_gradients_add_up() -> None:
    plain, ours = torch.tensor(1.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    contributions: list[float] = []
    handle = th.hook(ours, lambda g: contributions.append(g.item()))
    y, z = plain**2, ours**2
    for total in (2.0, 4.0):
        y.backward(retain_graph=True)
        z.backward(retain_graph=True)
        assert plain.grad == ours.grad == total
    assert contributions == [2.0, 2.0]
    assert handle.fired == 2


# -- B2: several passes ------------------------------------------------------------------------------------------------


def test_b2_each_of_two_losses_over_one_graph_is_modified() -> None:
    plain, ours = one_weight(), one_weight()
    plain.weight.register_hook(lambda g: g * 10)
    with th.attach(ours, [th.Hook("ten", on="weight", at="grad", do=th.scale(10.0))]) as rig:
        for model in (plain, ours):
            out = model(ONE)
            (out * 2).sum().backward(retain_graph=True)
            (out * 3).sum().backward()
    assert plain.weight.grad == ours.weight.grad == 50.0
    assert rig.ledger["ten"].changed == 2


def test_b2_only_the_second_of_two_losses_can_be_modified() -> None:
    plain, ours = one_weight(), one_weight()
    with th.attach(ours, [th.Hook("ten", on="weight", at="grad", do=th.scale(10.0))]) as rig:
        out, other = plain(ONE), ours(ONE)
        rig.mute("ten")
        (out * 2).sum().backward(retain_graph=True)
        (other * 2).sum().backward(retain_graph=True)
        rig.unmute("ten")
        plain.weight.register_hook(lambda g: g * 10)
        (out * 3).sum().backward()
        (other * 3).sum().backward()
    assert plain.weight.grad == ours.weight.grad == 32.0
    assert rig.ledger["ten"].changed == 1


def test_b2_a_gradient_of_a_gradient_is_modified_twice() -> None:
    def of(model: nn.Linear) -> tuple[Tensor, Tensor]:
        (inner,) = torch.autograd.grad((model(ONE * 3) ** 3).sum(), model.weight, create_graph=True)
        inner.sum().backward()
        return inner, model.weight.grad

    bare, plain, ours = one_weight(), one_weight(), one_weight()
    plain.weight.register_hook(lambda g: g * 10)
    with th.attach(ours, [th.Hook("ten", on="weight", at="grad", do=th.scale(10.0))]) as rig:
        assert of(bare) == (81.0, 162.0)
        assert of(plain) == of(ours) == (810.0, 16200.0)
    assert rig.ledger["ten"].changed == 2


def test_b2_a_gradient_of_a_gradient_can_be_modified_once() -> None:
    plain, ours = one_weight(), one_weight()
    with th.attach(ours, [th.Hook("ten", on="weight", at="grad", do=th.scale(10.0))]) as rig:
        rig.mute("ten")
        inners = [
            torch.autograd.grad((model(ONE * 3) ** 3).sum(), model.weight, create_graph=True)[0]
            for model in (plain, ours)
        ]
        rig.unmute("ten")
        plain.weight.register_hook(lambda g: g * 10)
        for inner in inners:
            inner.sum().backward()
    assert plain.weight.grad == ours.weight.grad == 1620.0


# -- B3: a contribution and the running sum ----------------------------------------------------------------------------


def test_b3_grad_is_the_contribution_and_grad_accumulated_the_sum() -> None:
    plain, ours = one_weight(), one_weight()
    of_plain: list[tuple[str, float]] = []
    of_ours: list[tuple[str, float]] = []
    plain.weight.register_hook(lambda g: of_plain.append(("grad", g.item())))
    plain.weight.register_post_accumulate_grad_hook(lambda p: of_plain.append(("grad_accumulated", p.grad.item())))

    def look(value: Tensor, ctx: th.Context) -> None:
        of_ours.append((ctx.point, value.item()))

    with th.attach(ours, [th.Hook(at, on="weight", at=at, do=look) for at in ("grad", "grad_accumulated")]):
        for model in (plain, ours):
            (2 * model(ONE)).sum().backward()
            (3 * model(ONE)).sum().backward()
    truth = [("grad", 2.0), ("grad_accumulated", 2.0), ("grad", 3.0), ("grad_accumulated", 5.0)]
    assert of_plain == of_ours == truth


# -- B4: every register function ---------------------------------------------------------------------------------------


def register_functions(cls: type) -> list[str]:
    return [name for name in dir(cls) if name.startswith("register_") and name.endswith("hook")]


@pytest.mark.parametrize(("cls", "at_least"), [(Tensor, 2), (nn.Module, 9), (Optimizer, 6)])
def test_b4_points_lists_every_register_function(cls: type, at_least: int, capsys: Any) -> None:
    assert main(["points", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    listed = set(told["not_offered"])
    for point in told["points"]:
        owners = [kind.capitalize() for kind in point["on"]]
        for part in point["uses"].split(" + "):
            owner, _, name = part.rpartition(".")
            owners = [owner] if owner else owners
            listed |= {f"{owner}.{name}" for owner in owners}
    found = register_functions(cls)
    assert len(found) >= at_least
    assert [name for name in found if f"{cls.__name__}.{name}" not in listed] == []


def test_b4_points_gives_the_reason_why_one_is_not_offered(capsys: Any) -> None:
    assert main(["points"]) == 0
    text = capsys.readouterr().out
    for point in ("grad_output", "grad_accumulated", "grad_final", "load_post"):
        assert any(line.startswith(point) for line in text.splitlines())
    assert "Module.register_backward_hook" in text.partition("not offered:")[2]


# -- B5: four hooks on a Linear ----------------------------------------------------------------------------------------


def test_b5_the_four_hooks_see_the_same_as_pytorchs_own() -> None:
    plain, ours = layer(), layer()
    truth: dict[str, Tensor] = {}
    plain.register_forward_pre_hook(lambda m, args: truth.update(input=args[0]))
    plain.register_forward_hook(lambda m, args, out: truth.update(output=out))
    plain.register_full_backward_pre_hook(lambda m, grads: truth.update(grad_output=grads[0]))
    plain.register_full_backward_hook(lambda m, grads, outs: truth.update(grad_input=grads[0]))
    points = ("input", "output", "grad_output", "grad_input")
    with th.attach(ours, [th.Hook(at, on=".", at=at, do=th.capture()) for at in points]) as rig:
        for model in (plain, ours):
            model(torch.tensor([[1.0, 2.0]], requires_grad=True)).pow(2).sum().backward()
        for at in points:
            assert torch.equal(rig.captured(at)["."][0], truth[at])
    assert torch.equal(plain.weight.grad, ours.weight.grad)


def test_b5_the_four_hooks_modify_the_same_as_pytorchs_own() -> None:
    plain, ours = layer(), layer()
    plain.register_forward_pre_hook(lambda m, args: (args[0] * 1.1,))
    plain.register_forward_hook(lambda m, args, out: out * 1.2)
    plain.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 1.3,))
    plain.register_full_backward_hook(lambda m, grads, outs: (grads[0] * 1.4,))
    by = {"input": 1.1, "output": 1.2, "grad_output": 1.3, "grad_input": 1.4}
    x, y = (torch.tensor([[1.0, 2.0]], requires_grad=True) for _ in range(2))
    with th.attach(ours, [th.Hook(at, on=".", at=at, do=th.scale(factor)) for at, factor in by.items()]):
        one, other = plain(x), ours(y)
        one.pow(2).sum().backward()
        other.pow(2).sum().backward()
    assert torch.equal(one, other)
    assert torch.equal(x.grad, y.grad)
    assert torch.equal(plain.weight.grad, ours.weight.grad)
    assert torch.equal(plain.bias.grad, ours.bias.grad)


# -- B6: saving and loading --------------------------------------------------------------------------------------------


def test_b6_the_state_dict_hooks_get_the_same_as_pytorchs_own() -> None:
    plain, ours = net(), net()
    of_plain: list[tuple[str, Any]] = []
    of_ours: list[tuple[str, Any]] = []

    def told(value: Any) -> Any:
        return list(value) if isinstance(value, dict) else value

    child = plain[1]
    child.register_state_dict_pre_hook(lambda m, prefix, keep_vars: of_plain.append(("save_pre", told(prefix))))
    child.register_state_dict_post_hook(lambda m, sd, prefix, meta: of_plain.append(("save_post", told(sd))))
    child.register_load_state_dict_pre_hook(lambda m, sd, *rest: of_plain.append(("load_pre", told(sd))))
    child.register_load_state_dict_post_hook(lambda m, keys: of_plain.append(("load_post", keys)))
    points = ("save_pre", "save_post", "load_pre", "load_post")

    def look(value: Any, ctx: th.Context) -> None:
        of_ours.append((ctx.point, told(value)))

    with th.attach(ours, [th.Hook(at, on="1", at=at, do=look) for at in points]):
        for model in (plain, ours):
            model.load_state_dict(model.state_dict())
    assert of_plain == of_ours
    assert [at for at, _ in of_ours] == list(points)


def test_b6_a_post_hook_may_change_the_dict() -> None:
    plain, ours = layer(), layer()

    def drop_bias(state: dict[str, Tensor]) -> None:
        del state["bias"]

    plain.register_state_dict_post_hook(lambda m, sd, prefix, meta: drop_bias(sd))
    with th.attach(ours, [th.Hook("drop", on=".", at="save_post", do=drop_bias)]):
        assert list(plain.state_dict()) == list(ours.state_dict()) == ["weight"]
    assert list(ours.state_dict()) == ["weight", "bias"]


def test_b6_a_pre_hook_may_change_what_is_loaded() -> None:
    plain, ours = layer(), layer()

    def rename(state: dict[str, Tensor]) -> None:
        state["weight"] = state.pop("kernel")

    saved = {"kernel": torch.ones(2, 2), "bias": torch.zeros(2)}
    plain.register_load_state_dict_pre_hook(lambda m, sd, *rest: rename(sd))
    with th.attach(ours, [th.Hook("rename", on=".", at="load_pre", do=rename)]):
        plain.load_state_dict(saved)
        ours.load_state_dict(saved)
    assert torch.equal(plain.weight, ours.weight)
    assert torch.equal(ours.weight, torch.ones(2, 2))


def test_b6_the_optimizers_state_dict_has_the_same_four() -> None:
    model = layer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    of_plain: list[str] = []
    of_ours: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda o: of_plain.append("save_pre"))
    optimizer.register_state_dict_post_hook(lambda o, sd: of_plain.append("save_post"))
    optimizer.register_load_state_dict_pre_hook(lambda o, sd: of_plain.append("load_pre"))
    optimizer.register_load_state_dict_post_hook(lambda o: of_plain.append("load_post"))
    points = ("save_pre", "save_post", "load_pre", "load_post")

    def look(value: Any, ctx: th.Context) -> None:
        of_ours.append(ctx.point)

    with th.attach(model, [th.Hook(at, on="optimizer", at=at, do=look) for at in points], optimizer=optimizer):
        optimizer.load_state_dict(optimizer.state_dict())
    assert of_plain == of_ours == list(points)


# -- B7: which gradient feeds which ------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_optimizer", [False, True])
def test_b7_the_ledger_shows_the_flow_of_one_step(with_optimizer: bool) -> None:
    plain, ours = net(), net()
    flow: list[tuple[str, str]] = []
    for name, module in plain.named_children():
        module.register_full_backward_pre_hook(lambda m, g, name=name: flow.append(("grad_output", name)))
        module.register_full_backward_hook(lambda m, g, o, name=name: flow.append(("grad_input", name)))
    for name, parameter in plain.named_parameters():
        parameter.register_hook(lambda g, name=name: flow.append(("grad", name)))
    points = {"loss": (":loss", "value_grad"), "into": ("**", "grad_output"), "own": ("**", "grad"),
              "on": ("**", "grad_input")}  # fmt: skip
    plan = [th.Hook(id, on=on, at=at, do=th.stats()) for id, (on, at) in points.items()]
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1) if with_optimizer else None
    with th.attach(ours, plan, optimizer=optimizer) as rig:
        x, y = (torch.ones(1, 2, requires_grad=True) for _ in range(2))
        loss = plain(x).sum()
        loss.register_hook(lambda g: flow.append(("value_grad", ":loss")))
        loss.backward()
        th.tap(ours(y).sum(), "loss", within=ours).backward()
        if optimizer is not None:
            optimizer.step()
        ran = [(site.point, site.name) for site in rig.ledger.order()]
    assert ran == flow
    assert ran == [
        ("value_grad", ":loss"),
        ("grad_output", "1"), ("grad", "1.bias"), ("grad", "1.weight"), ("grad_input", "1"),
        ("grad_output", "0"), ("grad", "0.bias"), ("grad", "0.weight"), ("grad_input", "0"),
    ]  # fmt: skip


def test_b7_one_layers_grad_input_is_the_grad_output_of_the_one_before() -> None:
    model = net()
    plan = [th.Hook(at, on="**", at=at, do=th.capture()) for at in ("grad_output", "grad_input")]
    with th.attach(model, plan) as rig:
        model(torch.ones(1, 2, requires_grad=True)).sum().backward()
        assert torch.equal(rig.captured("grad_input")["1"][0], rig.captured("grad_output")["0"][0])


class Tapped(nn.Module):
    def __init__(self, recompute: bool) -> None:
        super().__init__()
        self.inner = one_weight()
        self.recompute = recompute

    def body(self, x: Tensor) -> Tensor:
        return th.tap(self.inner(x), "h") ** 2

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.body, x, use_reentrant=False) if self.recompute else self.body(x)


@pytest.mark.parametrize("recompute", [False, True])
def test_b7_a_tap_fires_for_its_own_model_only(recompute: bool) -> None:
    ours, other = Tapped(recompute), Tapped(recompute)
    with th.attach(ours, [th.Hook("ten", on=":h", at="value", do=th.scale(10.0))]) as rig:
        mine, theirs = ours(ONE).sum(), other(ONE).sum()
        assert (mine, theirs) == (100.0, 1.0)
        theirs.backward()
        mine.backward()
        assert rig.ledger["ten"].fired == 1
    assert other.inner.weight.grad == 2.0
    assert ours.inner.weight.grad == 200.0


def test_b7_a_tap_outside_every_forward_is_not_silently_lost() -> None:
    model = one_weight()
    with th.attach(model, [th.Hook("ten", on=":loss", at="value_grad", do=th.scale(10.0))]) as rig:
        try:
            th.tap(model(ONE).sum(), "loss").backward()
        except th.RefusedError:
            return
        assert rig.ledger["ten"].fired == 1 or rig.ledger["ten"].skipped


def test_b7_a_tap_goes_with_its_model() -> None:
    gone, left = Tapped(False), Tapped(False)
    th.attach(gone, [th.Hook("ten", on=":h", at="value", do=th.scale(10.0))])
    assert gone(ONE) == 100.0
    del gone
    gc.collect()
    assert left(ONE) == 1.0


# -- B8 to B11: errors and their timing --------------------------------------------------------------------------------


def everything(model: nn.Module) -> th.Rig:
    """Return an observing hook for every backward point."""
    points = {"grad_output": ".", "grad_input": ".", "grad": "**", "grad_accumulated": "**"}
    return th.attach(model, [th.Hook(at, on=on, at=at, do=lambda g: None) for at, on in points.items()])


def test_b8_backward_of_a_vector_raises() -> None:
    plain, ours = layer(), layer()
    x = torch.ones(2, requires_grad=True)
    with everything(ours) as rig:
        for model in (plain, ours):
            with pytest.raises(RuntimeError, match="only for scalar outputs"):
                model(x).backward()
        assert sum(account.fired for account in rig.ledger.values()) == 0
        plain(x).backward(torch.ones(2))
        ours(x).backward(torch.ones(2))
        assert rig.ledger["grad_output"].fired == 1
    assert torch.equal(plain.weight.grad, ours.weight.grad)


def test_b9_autograd_grad_gives_a_tuple() -> None:
    plain, ours = one_weight(), one_weight()
    with everything(ours):
        for model in (plain, ours):
            grads = torch.autograd.grad((model(ONE) ** 2).sum(), model.weight, create_graph=True)
            with pytest.raises(AttributeError, match="'tuple' object has no attribute 'backward'"):
                grads.backward()
            grads[0].backward()
    assert plain.weight.grad == ours.weight.grad == 2.0


def test_b10_a_save_pre_hook_gets_the_prefix_as_a_string() -> None:
    plain, ours = net(), net()
    of_plain: list[Any] = []
    of_ours: list[Any] = []
    for module in plain.modules():
        module.register_state_dict_pre_hook(lambda m, prefix, keep_vars: of_plain.append(prefix))
    with th.attach(ours, [th.Hook("pre", on=(".", "**"), at="save_pre", do=of_ours.append)]):
        plain.state_dict()
        ours.state_dict()
    assert of_plain == of_ours == ["", "0.", "1."]


@pytest.mark.parametrize("attach", [False, True], ids=["plain", "ours"])
def test_b11_a_backward_pre_hook_runs_before_the_modules_own_gradients(attach: bool) -> None:
    model = layer()
    events: list[str] = []

    def note(event: str) -> Callable[..., None]:
        return lambda *args: events.append(event)

    x = torch.ones(1, 2, requires_grad=True)
    if attach:
        sites = {"before": (".", "grad_output"), "bias": ("bias", "grad"), "weight": ("weight", "grad"),
                 "after": (".", "grad_input")}  # fmt: skip
        th.attach(model, [th.Hook(id, on=on, at=at, do=note(id)) for id, (on, at) in sites.items()])
    else:
        model.register_full_backward_pre_hook(note("before"))
        model.bias.register_hook(note("bias"))
        model.weight.register_hook(note("weight"))
        model.register_full_backward_hook(note("after"))
    model(x).sum().backward()
    assert events == ["before", "bias", "weight", "after"]
