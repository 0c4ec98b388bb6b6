"""Check that `TENTERHOOK=0` turns off every hook, and that the program runs as it would without tenterhook."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook import switch


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENTERHOOK", "0")
    monkeypatch.setattr(switch, "_warned", True)


def trained(*, hooks: bool) -> tuple[nn.Module, th.Rig | None]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = None
    if hooks:
        plan = [
            th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.001)),
            th.Hook("zero", on="0", at="output", do=torch.zeros_like),
            th.Hook("seen", on="**", at="grad", do=th.stats()),
        ]
        rig = th.attach(model, plan, optimizer=optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        y = model(torch.ones(1, 2))
        if hooks:
            th.hook(y, torch.zeros_like)
        y.sum().backward()
        optimizer.step()
    return model, rig


@pytest.mark.usefixtures("off")
def test_no_hook_fires_and_the_rig_still_counts_steps() -> None:
    bare, _ = trained(hooks=False)
    found, rig = trained(hooks=True)
    assert rig is not None
    assert all(map(torch.equal, found.parameters(), bare.parameters()))
    assert rig.step_count == 3
    assert [rig.ledger[id].fired for id in rig.ledger] == [0, 0, 0]
    assert [rig.ledger[id].due for id in rig.ledger] == [0, 0, 0]
    rig.mute("clip")
    rig.unmute("clip")
    assert rig.values("seen") == {}


@pytest.mark.usefixtures("off")
def test_an_exam_watches_nothing() -> None:
    model = nn.Linear(2, 1)
    with th.examine(model) as exam:
        model.weight.register_hook(lambda grad: None)
        model(torch.ones(1, 2)).sum().backward()
    assert len(exam.hooks) == 0 and exam.findings.codes == []


def test_the_first_rig_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENTERHOOK", "0")
    monkeypatch.setattr(switch, "_warned", False)
    with pytest.warns(RuntimeWarning, match="tenterhook is off: no hook fires, because TENTERHOOK=0 is set"):
        th.watch(nn.Linear(2, 1))
    th.watch(nn.Linear(2, 1))  # pytest turns a second warning into an error


def test_any_other_value_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENTERHOOK", "1")
    _, rig = trained(hooks=True)
    assert rig is not None
    assert rig.ledger["clip"].fired == 6  # the zeroed output leaves the first layer without gradients
