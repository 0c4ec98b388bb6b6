"""Test that an audit does not stop training: neither with unusual parameters, nor if it fails itself."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import tenterhook as th
from tenterhook.audit.step_audit import StepAudit
from tenterhook.audit.value_audit import ValueAudit

SMALL = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2)


def train(model: nn.Module, steps: int) -> th.Rig:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig = th.attach(model, th.Hook("sizes", on="**.weight", at="grad_final", do=th.stats()), optimizer=optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        model[0](torch.ones(1, 4)).sum().backward()
        optimizer.step()
    return rig


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 2))


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_parameters_of_8_and_fewer_bits(dtype: torch.dtype):
    model = build()
    model.small = nn.Parameter(torch.zeros(8, dtype=torch.uint8).view(dtype), requires_grad=False)
    rig = train(model, 9)
    assert rig.ledger["sizes"].fired == 9
    assert not th.check(rig)


@pytest.mark.parametrize(("part", "method"), [(ValueAudit, "changed"), (StepAudit, "begin"), (StepAudit, "unhandled")])
def test_an_audit_that_fails_is_reported_once_and_training_goes_on(
    part: type, method: str, monkeypatch: pytest.MonkeyPatch
):
    def fail(*args: object, **kwargs: object) -> None:
        raise NotImplementedError("no norm of this dtype")

    monkeypatch.setattr(part, method, fail)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rig = train(build(), 9)
    assert rig.ledger["sizes"].fired == 9
    said = [str(one.message) for one in caught]
    assert said == [
        "tenterhook: auditing the hooks failed, and training goes on: NotImplementedError('no norm of this dtype')"
    ]


def test_a_warning_that_the_program_turns_into_an_error_is_raised():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    th.attach(model, th.Hook("sizes", on="**.weight", at="grad_final", do=th.stats()), optimizer=optimizer)
    model[0](torch.ones(1, 4)).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="TH701"):
            other.step()
