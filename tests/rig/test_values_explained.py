"""Check that an empty result of `values`, `vectors` or `captured` says why it is empty."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tenterhook as th


def explained(rig: th.Rig, method: str = "values") -> str:
    with pytest.warns(RuntimeWarning) as caught:
        assert getattr(rig, method)("h") == {}
    return str(caught[0].message)


def attached(model: nn.Module, **hook) -> th.Rig:
    return th.attach(model, th.Hook("h", **({"on": "**", "at": "grad", "do": th.stats()} | hook)))


def train(model: nn.Module, steps: int = 1) -> None:
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2))


def test_nothing_has_run(model):
    assert explained(attached(model)) == (
        "tenterhook: rig.values('h') is empty: hook 'h' at grad: no pass through its targets was seen since it was "
        "attached"
    )


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:FutureWarning")
def test_code_that_was_compiled_ahead_of_time_calls_no_hooks(model):
    ahead = torch.jit.trace(model, torch.ones(1, 2))
    rig = attached(model, at="output", do=th.capture())
    ahead(torch.ones(1, 2))
    assert explained(rig, "captured").endswith("no pass through its targets was seen since it was attached")


def test_no_step_has_finished(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("h", on="**", at="grad", do=th.stats()), optimizer=optimizer)
    train(model)
    assert explained(rig).endswith(
        "hook 'h' at grad: no step has finished yet; optimizer.step() ends a step, or backward() if attach received no "
        "optimizer; in an evaluation, write `with rig.step():`"
    )


def test_the_optimizer_has_not_stepped(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("h", on="**", at="grad_final", do=th.stats()), optimizer=optimizer)
    train(model)
    assert explained(rig).endswith(
        "hook 'h' at grad_final: no step was seen of an optimizer that attach received; call optimizer.step()"
    )


def test_the_hook_is_muted(model):
    rig = attached(model)
    rig.mute("h")
    train(model)
    assert explained(rig, "vectors") == (
        "tenterhook: rig.vectors('h') is empty: hook 'h' at grad: the hook is muted (call rig.unmute)"
    )


def test_no_target_can_fire(model):
    model.requires_grad_(False)
    rig = attached(model)
    train_without_gradients(model)
    assert explained(rig).endswith("no target can fire: frozen")


def test_the_hook_is_skipped(model):
    rig = attached(model, at="output")
    model.eval()
    train(model)
    assert "it was skipped: " in explained(rig)


def test_the_hook_was_not_due(model):
    rig = attached(model, when=th.When(start=10))
    train(model, 2)
    assert explained(rig).endswith("it was not due in any of the 2 finished steps")


def test_no_tap_has_run(model):
    rig = attached(model, on="probs", at="value")
    train(model)
    assert explained(rig).endswith("no tap that it selects has run")


def test_the_action_records_no_numbers(model):
    rig = attached(model, do=lambda g: None)
    train(model)
    assert explained(rig).endswith("has not recorded any so far")


def train_without_gradients(model: nn.Module) -> None:
    model(torch.ones(1, 2))
