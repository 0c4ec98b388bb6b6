"""Models that a program trains are found when their optimizers step."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from tenterhook.adapters.discover import Discovery

Found = list[tuple[nn.Module, list[Optimizer]]]


@pytest.fixture
def found() -> Iterator[Found]:
    told: Found = []
    with Discovery(lambda model, optimizers, moment: told.append((model, optimizers))):
        yield told


def step(model: nn.Module, *optimizers: Optimizer) -> None:
    model(torch.ones(1, 2)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()


def same(found: Found, wanted: list[tuple[nn.Module, list[Optimizer]]]) -> bool:
    return len(found) == len(wanted) and all(
        a is b and len(x) == len(y) and all(p is q for p, q in zip(x, y, strict=True))
        for (a, x), (b, y) in zip(found, wanted, strict=True)
    )


def test_one_model_and_one_optimizer_are_found_once_before_the_first_step(found: Found):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: found.append((model, [])))
    step(model, optimizer)
    step(model, optimizer)
    assert same(found, [(model, [optimizer]), (model, []), (model, [])])


def test_hooks_that_are_registered_at_the_first_forward_pass_see_its_input():
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    told: list[Any] = []

    def on_model(found: nn.Module, optimizers: list[Optimizer], moment: str) -> None:
        told.append((found, optimizers, moment))
        found.register_forward_pre_hook(lambda module, args: told.append(("args", *args)))
        found.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        found.register_forward_pre_hook(
            lambda module, args, kwargs: told.append(("kwargs", *args, *kwargs)), with_kwargs=True
        )
        found.register_forward_hook(lambda module, args, output: told.append(("output", *args)))

    with Discovery(on_model, at_first_forward=True):
        with torch.no_grad():
            model(torch.zeros(1, 2))
        model.eval()(torch.zeros(1, 2))
        model.train()
        assert told == []
        x = torch.ones(1, 2)
        step(model, optimizer)
        assert told[0] == (model, [optimizer], "forward")
        seen = [(what, *(value.tolist() for value in values)) for what, *values in told[1:]]
        assert seen == [("args", x.tolist()), ("kwargs", (2 * x).tolist()), ("output", (2 * x).tolist())]
        step(model, optimizer)
    assert len(told) == 7


def test_hooks_that_are_registered_at_the_first_forward_pass_see_and_change_keyword_arguments():
    class Named(nn.Linear):
        def forward(self, *, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return super().forward(x) * scale

    model = Named(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1)

    def change(module: nn.Module, args: Any, kwargs: Any) -> Any:
        return args, kwargs | {"scale": 0.0}

    with Discovery(
        lambda found, *_: found.register_forward_pre_hook(change, with_kwargs=True), at_first_forward=True
    ):  # fmt: skip
        assert model(x=torch.ones(1, 2)).item() == 0.0
    assert optimizer is not None


def test_a_model_with_two_waits_for_both_and_has_them_in_the_order_they_step(found: Found):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    second, first = SGD(model[0].parameters(), lr=0.1), AdamW(model[1].parameters(), lr=0.1)
    first.step()
    assert found == []
    second.step()
    assert same(found, [(model, [first, second])])


def test_one_that_never_steps_is_not_waited_for_longer_than_a_step(found: Found):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    idle, used = SGD(model[0].parameters(), lr=0.1), SGD(model[1].parameters(), lr=0.1)
    used.step()
    assert found == []
    used.step()
    used.step()
    assert same(found, [(model, [used])])
    idle.step()
    assert same(found[1:], [(model, [used, idle])])


def test_two_models_are_two(found: Found):
    one, other = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizers = [SGD(m.parameters(), lr=0.1) for m in (one, other)]
    step(one, optimizers[0])
    step(other, optimizers[1])
    assert same(found, [(one, [optimizers[0]]), (other, [optimizers[1]])])


def test_one_optimizer_over_two_models_finds_both(found: Found):
    encoder, decoder = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizer = SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    optimizer.step()
    assert {id(model) for model, _ in found} == {id(encoder), id(decoder)}


def test_an_optimizer_that_replaces_the_first_is_found_alone(found: Found):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    first = SGD(model[1].parameters(), lr=0.1)
    step(model, first)
    second = SGD(model.parameters(), lr=0.1)
    step(model, second)
    assert same(found, [(model, [first]), (model, [second])])


def test_the_outermost_module_is_the_model_and_of_two_the_smaller(found: Found):
    inner = nn.Linear(2, 1)
    small = nn.Sequential(inner)
    large = nn.ModuleDict({"model": inner, "teacher": nn.Linear(2, 1), "more": nn.Linear(2, 1)})
    step(inner, optimizer := SGD(inner.parameters(), lr=0.1))
    assert same(found, [(small, [optimizer])])
    assert large is not None


def test_a_copy_is_a_model_of_its_own(found: Found):
    model = nn.Sequential(nn.Linear(2, 1))
    average = copy.deepcopy(model)
    step(average, optimizer := SGD(average.parameters(), lr=0.1))
    assert same(found, [(average, [optimizer])])


class Around(Optimizer):
    """Wraps another optimizer, and is an Optimizer by its class, as in Accelerate."""

    def __init__(self, inner: Optimizer) -> None:
        self.inner = inner

    @property
    def param_groups(self) -> Any:
        return self.inner.param_groups

    def step(self, closure: Any = None) -> None:
        self.inner.step()


def test_a_wrapper_of_an_optimizer_is_not_waited_for(found: Found):
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    around = Around(optimizer)
    around.step()
    assert same(found, [(model, [optimizer])])


def test_nothing_is_found_outside_the_context():
    told: Found = []
    model = nn.Linear(2, 1)
    with Discovery(lambda model, optimizers, moment: told.append((model, optimizers))):
        pass
    step(model, SGD(model.parameters(), lr=0.1))
    assert told == []
