"""The relative change that a modifier makes is recorded in one step out of ten, if there is a sink."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tenterhook as th


def train(*sinks: Any, do: Any = None, at: str = "grad_final", steps: int = 13) -> tuple[nn.Module, th.Rig]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    on = "weight" if at != "output" else "."
    rig = th.attach(model, th.Hook("m", on=on, at=at, do=do or th.scale(0.25)), optimizer=optimizer, sinks=sinks)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    assert rig.flush()
    rig.detach()
    return model, rig


@pytest.mark.parametrize("at", ["grad", "grad_final", "output"])
def test_the_recorded_change_is_relative(at: str):
    told: list[tuple[int, dict[str, Any]]] = []
    train(lambda values, step: told.append((step, values)), at=at)
    target = "." if at == "output" else "weight"
    assert [(step, list(values)) for step, values in told] == [
        (1, [f"m/{target}/change"]),
        (11, [f"m/{target}/change"]),
    ]
    assert all(list(values.values()) == [pytest.approx(0.75)] for _, values in told)


def test_a_modifier_that_changes_nothing_is_not_recorded():
    told: list[Any] = []
    train(lambda values, step: told.append(values), do=lambda g: None)
    assert told == []


def test_without_a_sink_the_numbers_are_the_same():
    (a, _), (b, _) = train(), train(lambda values, step: None)
    assert torch.equal(a.weight, b.weight)
