"""Check that a selector which matches nothing is answered with one that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.plan import text_errors


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.attn = nn.Linear(4, 4)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 4)
        self.h = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 1)


def remedy(on: Any, at: Any = "output") -> str:
    with pytest.raises(th.TenterhookError) as raised:
        th.attach(Model(), th.Hook("s", on=on, at=at, do=th.stats()))
    return raised.value.remedy or ""


@pytest.mark.parametrize(
    "on, at, text, works",
    [
        ("h[0].mlp", "output", "write 'h.0.mlp': the name has a dot before the index", "h.0.mlp"),
        ("Linear", "output", "to select by class, write 'type:Linear'", "type:Linear"),
        ("head|embed", "output", "write several patterns as a list: on=['head', 'embed']", ["head", "embed"]),
        ("head, embed", "output", "write several patterns as a list: on=['head', 'embed']", ["head", "embed"]),
        ([nn.Linear], "output", 'write on=["type:Linear"]', ["type:Linear"]),
        (nn.Linear, "output", 'write on="type:Linear"', "type:Linear"),
        ("blocks.*", "output", "begin with a name of the model: 'embed', 'h', 'head'", "h.*"),
        ("heads.*", "grad", "write 'head.*', which matches 2 parameters", "head.*"),
        ("h.*.weight", "grad", "write 'h.**.weight', which matches 4 parameters; ** crosses parts, * does not",
         "h.**.weight"),
        ("h.*.mpl", "output", "write 'h.*.mlp', which matches 2 modules", "h.*.mlp"),
        ("wieght", "grad", "write '**.weight', which matches 6 parameters", "**.weight"),
        ("weight", "grad", "write '**.weight' to select every parameter whose name ends with it", "**.weight"),
        (r"h\.\d+\.mlp", "output",
         "write 'h.*.mlp', which matches 2 modules; a pattern is not a regular expression: * matches within a part of "
         "a name, ** across parts", "h.*.mlp"),
        ("h.0", "grad", "to select the parameters of the module, write 'h.0.**'", "h.0.**"),
        ("head.weight", "output", "name the module 'head', or use a parameter point such as grad", "head"),
        ("h.2", "output", "use one of the nearest names: 'h.0', 'h.1'", "h.0"),
        ("type:Liner", "output", "use a class of the model, such as 'type:Linear'", "type:Linear"),
    ],
)  # fmt: skip
def test_what_is_suggested_works(on: Any, at: Any, text: str, works: Any):
    assert remedy(on, at) == text
    rig = th.attach(Model(), th.Hook("s", on=works, at=at, do=th.stats()))
    assert len(rig.ledger["s"]) > 0


def refused(act: Any) -> str:
    with pytest.raises(th.TenterhookError) as raised:
        act()
    return str(raised.value)


STATS = th.Hook("s", on="**", at="grad", do=th.stats())


@pytest.mark.parametrize(
    "act, text",
    [
        (lambda: th.check(th.Plan([STATS])),
         "th.check cannot check this: an object of type Plan\n"
         "  remedy: write th.check(model, plan), or th.check(rig) after a step"),
        (lambda: th.check(Model()),
         "th.check cannot check this: the plan is missing\n"
         "  remedy: write th.check(model, plan), or th.check(rig) after a step"),
        (lambda: th.attach(Model(), STATS, optimizer=torch.optim.SGD),
         "optimizer= received the class SGD, not an optimizer\n"
         "  remedy: create it, and pass the object that you step: SGD(model.parameters(), lr=0.1)"),
        (lambda: th.attach(Model(), STATS, tensors=[torch.ones(1)]),
         "tensors= must be a dict, but its type is list\n"
         '  remedy: pass each tensor with its name in the plan: tensors={"direction": tensor}'),
        (lambda: th.attach(Model(), th.Hook("s", on="h.0", at="output", do=th.steer("v")), tensors={"v": [1, 2]}),
         "hook 's' at output: steer needs a tensor, but tensors['v'] is an object of type list\n"
         '  remedy: pass a tensor: attach(..., tensors={"v": torch.tensor(...)})'),
        (lambda: th.attach(Model(), th.Hook("s", on="**", at="grad", do=th.Action("clip_norm", {"max_norm": 1.0}))),
         "hook 's' at grad: clip_norm: it has no parameter 'max_norm'; the nearest is 'max'\n"
         "  remedy: write max instead of max_norm: clip_norm(max, over='target')"),
        (lambda: th.attach(Model(), th.Hook("s", on="**", at="grad", do=th.Action("clip_norm"))),
         "hook 's' at grad: clip_norm: the parameter 'max' is missing\n"
         "  remedy: call it as clip_norm(max, over='target')"),
        (lambda: th.attach(Model(), STATS, sinks=lambda values: None),
         "the sink <lambda> cannot be called with two arguments\n"
         "  remedy: write it as `def log(values, step): ...`; values is a dict of numbers"),
        (lambda: th.find_nonfinite(torch.optim.SGD(Model().parameters())).__enter__(),
         "the model must be a module, but its type is SGD\n"
         "  remedy: write th.find_nonfinite(model)"),
        (lambda: th.detach(th.watch(Model())),
         "th.detach received a rig, not a model\n  remedy: write rig.detach(), or th.detach(model)"),
        (lambda: th.attach(Model(), th.Hook("s", on="**", at="update", do=th.scale(0.5))),
         "hook 's' at update: the action 'scale' changes the value, but this point only observes\n"
         "  remedy: use one of the action's points: grad, grad_accumulated, grad_final"),
        (lambda: th.attach(Model(), STATS, sinks=th.Store),
         "the class Store is not a sink\n  remedy: create an object of the class, such as sinks=Store(...)"),
        (lambda: th.restore(Model(), "checkpoint.pt"),
         "the state must be a mapping, but its type is str\n"
         "  remedy: load the file with torch.load, and pass the entry in which you saved rig.state_dict()"),
        (lambda: effect_of(lambda loss: loss.expand(2)),
         "the loss has the shape [2], but a backward pass begins at one number\n"
         "  remedy: reduce the loss: th.effect(rig, loss.mean())"),
        (lambda: effect_of(lambda loss: loss.backward() or loss),
         "the backward pass of this loss has already run\n  remedy: call th.effect before loss.backward()"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_answered_with_what_to_write(act: Any, text: str):
    assert refused(act).replace("<lambda>.<locals>.", "") == text


def effect_of(prepared: Any) -> th.Effect:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    rig = th.attach(model, th.Hook("s", on="**", at="grad", do=th.scale(0.5)))
    return th.effect(rig, prepared(model(torch.ones(1, 2)).square().sum()))


def test_an_error_at_every_target_is_reported_once():
    def broken(x: torch.Tensor) -> None:
        raise ValueError("no")

    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    rig = th.attach(model, th.Hook("s", on="*", at="output", do=broken, on_error="mute"))
    with pytest.warns(RuntimeWarning) as caught:
        model(torch.ones(1, 2))
    (warning,) = caught
    assert str(warning.message).endswith("\n  note: the same error at other targets is not reported again")
    assert len(rig.ledger["s"].dormant) == 3


def test_values_of_a_hook_that_captures_name_the_other_method():
    model = nn.Linear(2, 1)
    rig = th.attach(model, th.Hook("c", on=".", at="output", do=th.capture()))
    model(torch.ones(1, 2)).sum().backward()
    with pytest.warns(RuntimeWarning, match=r"its action captures tensors; read rig.captured\('c'\)"):
        assert rig.values("c") == {}


def test_a_step_without_with_is_reported():
    rig = th.watch(nn.Linear(2, 1))
    with pytest.warns(RuntimeWarning) as caught:
        rig.step()
    assert [str(one.message) for one in caught] == [
        "tenterhook: rig.step() was called without `with`, so it marked no step\n"
        "  remedy: write `with rig.step():` around the step"
    ]


def test_the_first_parameters_in_the_explanations_are_those_of_the_actions():
    for name, parameter in text_errors._FIRST.items():
        assert next(iter(getattr(th, name).__signature__.parameters)) == parameter


def test_the_taps_that_ran_are_named():
    class Tapped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return th.tap(x * 2, "probs")

    model = Tapped()
    rig = th.attach(model, th.Hook("t", on="blocks.*:probs", at="value", do=th.stats()))
    model(torch.ones(1, 2))
    with pytest.warns(RuntimeWarning, match="no tap that it selects has run; the taps that ran are ':probs'"):
        assert rig.values("t") == {}


def test_a_recorded_run_is_asked_for_by_names_that_exist(tmp_path: Path):
    model = nn.Linear(2, 1)
    rig = th.attach(model, th.Hook("norms", on="**", at="grad", do=th.stats()), sinks=th.Store(tmp_path / "run"))
    model(torch.ones(1, 2)).sum().backward()
    rig.detach()
    run = th.open_run(tmp_path / "run")
    assert refused(lambda: run.table("nrms")) == (
        "nothing is recorded under the hook 'nrms'\n  remedy: use the nearest hook, 'norms'"
    )
    assert refused(lambda: run.table("norms", "wieght")) == (
        "nothing is recorded under the target 'wieght'\n  remedy: use the nearest target, 'weight'"
    )
    assert run.table("norms").num_rows > 0 and run.table("x*").num_rows == 0
    assert refused(lambda: th.open_run(tmp_path / "rnu")) == (
        f"the folder {tmp_path}/rnu does not exist\n  remedy: pass the nearest folder, {tmp_path}/run"
    )
    assert refused(lambda: th.open_run(tmp_path)) == (
        f"there is no recorded run in {tmp_path}\n  remedy: pass one of {tmp_path}/run"
    )
