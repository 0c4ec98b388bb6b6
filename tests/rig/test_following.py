"""Hooks follow parameters and modules that are replaced, swapped by functional_call, frozen, tied or moved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrize

import tenterhook as th


@pytest.fixture
def pair() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))


@pytest.fixture
def step(pair: nn.Sequential) -> Callable[..., None]:
    def run(*optimizers: torch.optim.Optimizer) -> None:
        pair.zero_grad()
        pair(torch.ones(1, 2)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()

    return run


def sgd_of(module: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD(module.parameters(), lr=lr)


def zero(id: str, on: str, at: str, **more: th.When) -> th.Hook:
    return th.Hook(id, on=on, at=at, do=th.scale(0.0), **more)


def reloaded(model: nn.Module) -> None:
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)


# -- swapped by functional_call ---------------------------------------------------------------------------------------


def test_a_teacher_run_by_functional_call_does_not_take_the_hook_from_the_student():
    model = nn.Linear(2, 2)
    optimizer = sgd_of(model)
    teacher = {name: p.detach().clone() for name, p in model.named_parameters()}
    rig = th.attach(model, [zero("h", "weight", "grad")], optimizer=optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        out = model(torch.ones(1, 2))
        with torch.no_grad():
            functional_call(model, teacher, (torch.ones(1, 2),))
        out.sum().backward()
        assert torch.equal(model.weight.grad, torch.zeros(2, 2))
        optimizer.step()
    site = rig.ledger["h"]["weight"]
    assert (site.state, site.due, site.fired, site.rebound) == ("installed", 3, 3, 0)


@pytest.mark.parametrize("at", ["grad", "grad_accumulated"])
def test_a_gradient_through_swapped_in_tensors_reaches_the_hook_of_the_parameter(at):
    model = nn.Linear(2, 2)
    rig = th.attach(model, [th.Hook("h", on="weight", at=at, do=th.scale(2.0))])
    fast = {name: p * 1.0 for name, p in model.named_parameters()}
    functional_call(model, fast, (torch.ones(1, 2),)).sum().backward()
    assert torch.equal(model.weight.grad, torch.full((2, 2), 2.0))
    assert rig.ledger["h"].fired == 1
    rig.detach()
    assert model.weight._backward_hooks is None and model.weight._post_accumulate_grad_hooks is None


# -- replaced ---------------------------------------------------------------------------------------------------------


def test_a_parametrization_registered_after_attaching(pair, step):
    optimizer = sgd_of(pair)
    hooks = [zero("g", "0.weight", "grad"), zero("f", "0.weight", "grad_final")]
    rig = th.attach(pair, [*hooks, th.Hook("u", on="0.weight", at="update", do=th.stats())], optimizer=optimizer)
    parametrize.register_parametrization(pair[0], "weight", nn.Identity())
    for _ in range(2):
        step(optimizer)
        assert torch.equal(pair[0].parametrizations.weight.original.grad, torch.zeros(2, 2))
    for id in "gfu":
        site = rig.ledger[id]["0.weight"]
        assert (site.state, site.due, site.fired, site.rebound) == ("installed", 2, 2, 1)
    assert rig.values("u")["0.weight"]["norm"] == 0.0


def test_a_parametrization_registered_while_the_hook_was_idle(pair, step):
    optimizer = sgd_of(pair)
    rig = th.attach(pair, [zero("g", "0.weight", "grad", when=th.When(start=1))], optimizer=optimizer)
    parametrize.register_parametrization(pair[0], "weight", nn.Identity())
    zeros = []
    for _ in range(3):
        step(optimizer)
        zeros.append(bool((pair[0].parametrizations.weight.original.grad == 0).all()))
    assert zeros == [False, True, True]
    site = rig.ledger["g"]["0.weight"]
    assert (site.due, site.fired, site.rebound) == (2, 2, 1)


def test_a_module_that_takes_the_place_of_another(pair, step):
    optimizer = sgd_of(pair)
    old = pair[1]
    rig = th.attach(
        pair,
        [zero("o", "1", "output"), zero("g", "1.weight", "grad"), zero("f", "1.weight", "grad_final")],
        optimizer=optimizer,
    )
    pair[1] = nn.Linear(2, 2)
    optimizer.add_param_group({"params": list(pair[1].parameters())})
    for _ in range(2):
        step(optimizer)
        assert torch.equal(pair(torch.ones(1, 2)), torch.zeros(1, 2))
    for id, fired in (("o", 4), ("g", 2), ("f", 2)):
        (site,) = rig.ledger[id].values()
        assert (site.state, site.due, site.fired, site.rebound) == ("installed", 2, fired, 1)
    assert len(th.inventory(old)) == 0


def test_parameters_replaced_by_loading_are_dormant_at_grad_final(pair, step):
    optimizer = sgd_of(pair)
    rig = th.attach(pair, [zero("f", "**", "grad_final"), zero("g", "**", "grad")], optimizer=optimizer)
    step(optimizer)
    reloaded(pair)
    step(optimizer)
    step(optimizer)
    assert rig.ledger["f"].dormant == dict.fromkeys(("0.weight", "0.bias", "1.weight", "1.bias"), "not in an optimizer")
    assert [(s.due, s.fired) for s in rig.ledger["f"].values()] == [(1, 1)] * 4
    assert [(s.due, s.fired, s.rebound) for s in rig.ledger["g"].values()] == [(3, 3, 1)] * 4


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(2, 2, bias=False)
        self.head = nn.Linear(2, 2, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))


def test_tied_parameters_that_are_untied_become_two_targets():
    zeros = {}
    for on in ("head.weight", "embed.weight", "**"):
        model = Tied()
        rig = th.attach(model, [zero("h", on, "grad")])
        assert list(rig.ledger["h"]) == ["embed.weight"]
        reloaded(model)
        model(torch.ones(1, 2)).sum().backward()
        zeros[on] = [bool((layer.weight.grad == 0).all()) for layer in (model.embed, model.head)]
    assert zeros == {"head.weight": [False, True], "embed.weight": [True, False], "**": [True, True]}


def test_the_ledger_has_a_line_of_its_own_for_a_name_that_was_an_alias():
    model = Tied()
    rig = th.attach(model, [zero("h", "head.weight", "grad")])
    assert rig.ledger["h"]["head.weight"].name == "embed.weight"
    reloaded(model)
    model(torch.ones(1, 2)).sum().backward()
    site = rig.ledger["h"]["head.weight"]
    assert (site.name, site.state, site.fired) == ("head.weight", "installed", 1)


# -- frozen, unfrozen, added to an optimizer --------------------------------------------------------------------------

PARAMETER_POINTS = ("grad", "grad_accumulated", "grad_final", "update")


def counts(rig: th.Rig, id: str) -> dict[str, tuple[str, int, int]]:
    return {name: (site.state, site.due, site.fired) for name, site in rig.ledger[id].items()}


@pytest.mark.parametrize("at", PARAMETER_POINTS)
def test_a_parameter_frozen_at_attach_fires_when_it_is_unfrozen(pair, step, at):
    optimizer = sgd_of(pair)
    pair[0].requires_grad_(False)
    rig = th.attach(pair, [th.Hook("h", on="**", at=at, do=th.stats())], optimizer=optimizer)
    assert rig.ledger["h"].dormant == {"0.weight": "frozen", "0.bias": "frozen"}
    step(optimizer)
    pair[0].requires_grad_(True)
    step(optimizer)
    step(optimizer)
    woken, always = ("installed", 2, 2), ("installed", 3, 3)
    assert counts(rig, "h") == {"0.weight": woken, "0.bias": woken, "1.weight": always, "1.bias": always}


@pytest.mark.parametrize("at", PARAMETER_POINTS)
def test_a_parameter_frozen_after_attach_is_dormant_until_it_is_unfrozen(pair, step, at):
    optimizer = sgd_of(pair)
    rig = th.attach(pair, [th.Hook("h", on="**", at=at, do=th.stats())], optimizer=optimizer)
    step(optimizer)
    pair[0].requires_grad_(False)
    step(optimizer)
    step(optimizer)
    assert rig.ledger["h"].dormant == {"0.weight": "frozen", "0.bias": "frozen"}
    asleep, always = ("dormant", 1, 1), ("installed", 3, 3)
    assert counts(rig, "h") == {"0.weight": asleep, "0.bias": asleep, "1.weight": always, "1.bias": always}
    pair[0].requires_grad_(True)
    step(optimizer)
    assert counts(rig, "h")["0.weight"] == ("installed", 2, 2)


def test_a_parameter_unfrozen_before_the_first_step_is_installed_from_it_on(pair, step):
    optimizer = sgd_of(pair)
    pair[0].requires_grad_(False)
    rig = th.attach(pair, [th.Hook("h", on="**", at="grad_final", do=th.stats())], optimizer=optimizer)
    pair[0].requires_grad_(True)
    step(optimizer)
    step(optimizer)
    assert set(counts(rig, "h").values()) == {("installed", 2, 2)}


def test_a_parameter_frozen_while_the_hook_was_idle_fires_when_it_is_unfrozen(pair, step):
    optimizer = sgd_of(pair)
    rig = th.attach(pair, [zero("h", "**", "grad", when=th.When(start=1))], optimizer=optimizer)
    pair[0].weight.requires_grad_(False)
    step(optimizer)
    step(optimizer)
    assert rig.ledger["h"].dormant == {"0.weight": "frozen"}
    pair[0].weight.requires_grad_(True)
    step(optimizer)
    step(optimizer)
    assert torch.equal(pair[0].weight.grad, torch.zeros(2, 2))
    assert {name: due for name, (_, due, _) in counts(rig, "h").items()} == {
        "0.weight": 2, "0.bias": 3, "1.weight": 3, "1.bias": 3,
    }  # fmt: skip


def test_an_added_parameter_group_enables_sites_at_the_optimizer_step(pair, step):
    optimizer = sgd_of(pair[1])
    hooks = [zero("f", "**", "grad_final"), th.Hook("u", on="**", at="update", do=th.stats())]
    rig = th.attach(pair, hooks, optimizer=optimizer)
    assert rig.ledger["f"].dormant == {"0.weight": "not in an optimizer", "0.bias": "not in an optimizer"}
    step(optimizer)
    optimizer.add_param_group({"params": list(pair[0].parameters())})
    before = pair[0].weight.detach().clone()
    step(optimizer)
    assert torch.equal(pair[0].weight, before)
    for id in "fu":
        assert counts(rig, id)["0.weight"] == ("installed", 1, 1)
        assert counts(rig, id)["1.weight"] == ("installed", 2, 2)


def test_an_exact_name_that_cannot_fire_is_refused(pair):
    pair[0].requires_grad_(False)
    with pytest.raises(th.DormantError) as caught:
        th.attach(pair, [zero("h", "0.weight", "grad")])
    assert str(caught.value) == (
        "hook 'h' at grad on '0.weight': the hook cannot fire because the target is frozen\n"
        "  remedy: set requires_grad=True, or use a pattern, so that the hook is dormant until the parameter is "
        "unfrozen"
    )
    with pytest.raises(th.DormantError) as caught:
        th.attach(pair, [zero("h", "1.weight", "grad_final")], optimizer=sgd_of(nn.Linear(1, 1)))
    assert str(caught.value) == (
        "hook 'h' at grad_final on '1.weight': the hook cannot fire because the target is not in an optimizer\n"
        "  remedy: pass the optimizer of this parameter to attach, or use grad_accumulated"
    )


def test_a_parameter_that_moves_to_another_optimizer(pair, step):
    first, second = sgd_of(pair[0]), sgd_of(pair[1])
    rig = th.attach(pair, [zero("f", "0.weight", "grad_final")], optimizer=[second, first])
    before = pair[0].weight.detach().clone()
    step(second, first)
    second.add_param_group({"params": [first.param_groups[0]["params"].pop(0)]})
    step(second, first)
    step(second, first)
    assert torch.equal(pair[0].weight, before)
    site = rig.ledger["f"]["0.weight"]
    assert (site.due, site.fired, site.changed) == (3, 3, 3)


# -- taps -------------------------------------------------------------------------------------------------------------


class Tapped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return th.tap(x, "p", within=self)


def test_a_tap_of_a_module_that_was_added_later_is_found():
    model = nn.Sequential(Tapped())
    rig = th.attach(model, [zero("h", "**", "value")])
    model(torch.ones(1))
    model.append(Tapped())
    assert model[1](torch.ones(1)).item() == 0.0
    model(torch.ones(1))
    assert {name: site.fired for name, site in rig.ledger["h"].items()} == {"0:p": 2, "1:p": 2}


def test_a_tap_without_a_module_belongs_to_the_model_whose_forward_runs():
    class Bare(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return th.tap(x * 2, "p")

    hooked, other = Bare(), Bare()
    rig = th.attach(hooked, [zero("h", ":p", "value")])
    assert other(torch.ones(1)).item() == 2.0
    assert hooked(torch.ones(1)).item() == 0.0
    assert other(torch.ones(1)).item() == 2.0
    assert rig.ledger["h"].fired == 1


# -- order ------------------------------------------------------------------------------------------------------------


def plus_one(x: Tensor) -> Tensor:
    return x + 1


def times_ten(x: Tensor) -> Tensor:
    return x * 10


def test_rigs_keep_their_order_at_a_parameter_when_the_first_comes_and_goes():
    model = nn.Linear(1, 1, bias=False)
    optimizer = sgd_of(model)
    every_second = th.When(every=2)
    th.attach(model, [th.Hook("a", on="weight", at="grad", do=plus_one, when=every_second)], optimizer=optimizer)
    th.attach(model, [th.Hook("b", on="weight", at="grad", do=times_ten)], optimizer=optimizer)
    seen = []
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        seen.append(model.weight.grad.item())
        optimizer.step()
    assert seen == [20.0, 10.0, 20.0, 10.0]


def test_rigs_keep_their_order_at_a_module_when_the_first_starts_late():
    model = nn.Identity()
    later = th.When(start=1)
    th.attach(model, [th.Hook("a", on=".", at="output", do=plus_one, when=later)])
    th.attach(model, [th.Hook("b", on=".", at="output", do=times_ten)])
    assert [model(torch.ones(1)).item() for _ in range(3)] == [10.0, 20.0, 20.0]


@pytest.mark.parametrize("change", ["mute and unmute", "add", "idle"])
def test_a_foreign_hook_registered_after_ours_stays_after_ours(change):
    model = nn.Linear(1, 1, bias=False)
    optimizer = sgd_of(model)
    when = th.When(every=2) if change == "idle" else th.When()
    rig = th.attach(model, [th.Hook("a", on="weight", at="grad", do=plus_one, when=when)], optimizer=optimizer)
    model.weight.register_hook(times_ten)

    def gradient() -> float:
        optimizer.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        return model.weight.grad.item()

    assert gradient() == 20.0
    if change == "mute and unmute":
        rig.mute("a")
        assert gradient() == 10.0
        rig.unmute("a")
    elif change == "add":
        rig.add(th.Hook("b", on="weight", at="grad", do=lambda g: None))
    else:
        assert gradient() == 10.0
    assert gradient() == 20.0
