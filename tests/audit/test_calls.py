"""Hooks on modules that a program uses without calling them: traced and compiled copies, and weights used directly."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th
from tests.support.earlier_torch import since

X = torch.arange(12.0).view(3, 4) / 12


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.dec(self.enc(x).tanh())


def traced(model: Net) -> Callable[[Tensor], Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.15 deprecates torch.jit.trace
        return torch.jit.trace(model, X)


def compiled_ahead(model: Net) -> Callable[[Tensor], Tensor]:
    function = torch.compile(model.forward, fullgraph=True, backend="aot_eager").aot_compile(((X,), {}))
    return lambda x: function(model, x)


def by_hand(model: Net) -> Callable[[Tensor], Tensor]:
    return lambda x: nn.functional.linear(model.enc(x).tanh(), model.dec.weight, model.dec.bias)


AHEAD = pytest.param(compiled_ahead, marks=since(12, "does not compile ahead of time"))


@pytest.mark.parametrize("copied", [traced, AHEAD, by_hand])
@pytest.mark.parametrize("at", ["input", "output", "grad_output", "grad_input"])
def test_a_module_that_is_used_but_not_called_is_reported_in_the_second_step(copied, at):
    model = Net()
    run = copied(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("half", on="dec", at=at, do=th.scale(0.5)), optimizer=optimizer)
    run(X).sum().backward()
    optimizer.step()
    run(X).sum().backward()
    with pytest.warns(RuntimeWarning, match="TH708: a module that the hook selects was not called. hook 'half'"):
        optimizer.step()
    assert [one.code for one in rig.imbalances] == ["TH708"]
    assert [one.code for one in th.check(rig)] == ["TH207"]
    rig.detach()


@pytest.mark.parametrize("copied", [traced, AHEAD])
def test_a_check_before_the_first_step_notes_that_no_target_was_called(copied):
    model = Net()
    run = copied(model)
    rig = th.attach(model, th.Hook("half", on="dec", at="output", do=th.scale(0.5)))
    assert not th.check(rig)
    run(X)
    (note,) = th.check(rig)
    assert (note.code, note.severity) == ("TH708", "note")
    model(X)
    assert not th.check(rig)
    rig.detach()


def test_an_observer_that_works_elsewhere_causes_no_warning():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)  # its attention never calls its out_proj
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("sizes", on="**", at="output", do=th.stats()), optimizer=optimizer)
    for _ in range(3):
        model(torch.ones(2, 3, 8)).sum().backward()
        optimizer.step()
    assert [(one.code, one.severity) for one in th.check(rig)] == [("TH207", "note")]
    rig.detach()


@pytest.mark.parametrize("phase", ["train", "eval", "any"])
def test_a_module_that_is_called_causes_no_warning_in_any_phase(phase):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = th.Hook("half", on="*", at="output", do=th.scale(0.5), when=th.When(phase=phase))
    rig = th.attach(model, hook, optimizer=optimizer)
    for _ in range(5):
        model(X).sum().backward()
        optimizer.step()
    assert not rig.imbalances
    rig.detach()


def test_a_rig_that_is_attached_between_the_passes_causes_no_warning():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(X).sum()
    rig = th.attach(model, th.Hook("half", on="*", at="output", do=th.scale(0.5)), optimizer=optimizer)
    loss.backward()
    optimizer.step()
    rig.detach()


def test_tied_weights_count_for_the_module_that_is_called():
    model = Net()
    model.spare = nn.Linear(4, 8)
    model.spare.weight, model.spare.bias = model.enc.weight, model.enc.bias
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("half", on="*", at="output", do=th.scale(0.5)), optimizer=optimizer)
    for _ in range(3):
        model(X).sum().backward()
        optimizer.step()
    assert not rig.imbalances
    rig.detach()
