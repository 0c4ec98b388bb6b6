"""Test `check` on plans before the first step, and on rigs by their ledger."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)
        self.spare = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)))


def rigged(*hooks: th.Hook, steps: int = 2, **how: Any) -> tuple[Any, th.Rig]:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Plan(hooks), optimizer=optimizer, **how)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
    return (model, optimizer), rig


def found(rig: th.Rig) -> list[tuple[str, str | None, str | None, str]]:
    return [(f.code, f.hook, f.target, f.severity) for f in th.check(rig)]


CLIP = th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(1.0, over="hook"))
STATS = th.Hook("stats", on="body", at="output", do=th.stats())


def test_what_is_right():
    _kept, rig = rigged(STATS, th.Hook("c", on="head.weight", at="grad", do=th.clip_value(0.01)))
    assert found(rig) == []
    assert repr(th.check(rig)) == "no findings"
    assert th.check(rig).exit_code == 0


def test_before_the_first_step_silence_is_no_fault():
    _kept, rig = rigged(STATS, CLIP, steps=0)
    assert found(rig) == []


def test_a_module_that_is_not_called():
    _kept, rig = rigged(th.Hook("s", on="spare", at="output", do=th.stats()))
    assert found(rig) == [("TH213", "s", "spare", "warning")]


def test_one_of_many_that_is_not_called_is_a_note():
    _kept, rig = rigged(th.Hook("s", on="**", at="output", do=th.stats()))
    assert found(rig) == [("TH213", "s", "spare", "note")]
    assert th.check(rig).exit_code == 0


def test_a_parameter_that_gets_no_gradient():
    _kept, rig = rigged(th.Hook("g", on="spare.weight", at="grad", do=th.stats()))
    assert found(rig) == [("TH202", "g", "spare.weight", "error")]


def test_a_hook_that_failed():
    def fail(x: torch.Tensor) -> None:
        raise ValueError("broken")

    with pytest.warns(RuntimeWarning, match="muted"):
        _kept, rig = rigged(th.Hook("f", on="body", at="output", do=fail, on_error="mute"))
    (one,) = th.check(rig)
    assert (one.code, one.hook, one.target) == ("TH510", "f", "body")
    assert "ValueError: broken" in one.evidence
    assert one.remedy == 'rig.unmute("f")  # after you fix the action'


def test_a_hook_whose_time_does_not_come():
    _kept, rig = rigged(th.Hook("late", on="body", at="output", do=th.stats(), when=th.When(start=100)))
    assert found(rig) == [("TH215", "late", None, "note")]


def test_a_phase_that_does_not_come():
    _kept, rig = rigged(th.Hook("e", on="body", at="output", do=th.stats(), when=th.When(phase="eval")))
    assert [f.code for f in th.check(rig)] == ["TH215"]


def test_targets_that_sleep():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("g", on="body.*", at="grad", do=th.stats()), optimizer=optimizer)
    model.body.requires_grad_(False)
    model(torch.randn(5, 3)).sum().backward()
    assert [f.code for f in th.check(rig)] == ["TH103"]


def test_a_model_that_never_ran():
    model, other = Net(), Net()
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    rig = th.attach(model, th.Hook("g", on="**", at="grad", do=th.stats()), optimizer=optimizer)
    other(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    assert [f.code for f in th.check(rig)] == ["TH206"]


def test_a_modifier_that_changes_nothing():
    _kept, rig = rigged(th.Hook("m", on="body.weight", at="grad", do=th.clip_value(1e9)))
    assert found(rig) == []  # the action returned a new tensor, and the ledger does not compare its elements
    _kept, rig = rigged(th.Hook("m", on="body.weight", at="grad", do=th.scale(1.0)))
    assert found(rig) == []
    _kept, rig = rigged(th.Hook("m", on="body.weight", at="grad", do=lambda g: None))
    assert found(rig) == []


def test_a_forgotten_return():
    def doubled(grad):
        grad = grad * 2

    @th.action("doubled", modifies=True, registry=(registry := th.Registry()))
    def registered(grad, ctx, *, by: float = 2.0):
        grad = grad * by

    for do in (doubled, registered()):
        _kept, rig = rigged(th.Hook("m", on="body.weight", at="grad", do=do), actions=registry)
        (finding,) = th.check(rig)
        assert (finding.code, finding.severity, finding.hook) == ("TH301", "error", "m")
        assert finding.evidence == "2 firings returned None"
        assert finding.remedy.endswith("    return grad")


@pytest.mark.parametrize(
    ("hook", "code"),
    [
        (th.Hook("h", on="bodi", at="output", do=th.stats()), "TH101"),
        (th.Hook("h", on="body", at="output", do=th.stats(), expect=3), "TH101"),
        (th.Hook("h", on="body", at="output", do=th.Action("unknown", {})), "TH102"),
        (th.Hook("h", on="body.weight", at="grad", do=th.Action("scale", {"bye": 2.0})), "TH102"),
        (th.Hook("h", on="frozen.weight", at="grad", do=th.stats()), "TH103"),
        (th.Hook("h", on="head.weight", at="grad_final", do=th.stats()), "TH104"),
        (th.Hook("h", on="body", at="output", do=th.stats()), None),
    ],
)
def test_a_plan_that_is_not_attached(hook: th.Hook, code: str | None):
    model = Net()
    model.frozen = nn.Linear(1, 1).requires_grad_(False)
    optimizer = torch.optim.SGD(model.body.parameters(), lr=0.1)
    findings = th.check(model, hook, optimizer=optimizer)
    assert findings.codes == ([code] if code else [])
    assert all(f.hook == "h" and f.remedy for f in findings)
    assert th.inventory(model).foreign == [] and len(th.inventory(model)) == 0


def test_a_plan_whose_signal_needs_an_optimizer():
    assert th.check(Net(), CLIP).codes == ["TH105"]


def test_every_hook_of_a_plan_is_looked_at():
    plan = th.Plan([
        th.Hook("a", on="bodi", at="output", do=th.stats()), STATS, th.Hook("b", on="heat", at="output", do=th.stats()),
    ])  # fmt: skip
    assert [(f.code, f.hook) for f in th.check(Net(), plan)] == [("TH101", "a"), ("TH101", "b")]


@pytest.mark.parametrize("at", ["save_pre", "save_post", "load_pre", "load_post"])
def test_a_training_that_never_saves_has_no_finding(mlp, sgd, train, at):
    rig = th.attach(mlp, th.Hook("state", on=".", at=at, do=lambda state: None), optimizer=sgd)
    train(mlp, sgd, 2)
    assert not th.check(rig)
