"""`clip_zscore` leaves gradients below its limit unchanged."""

from __future__ import annotations

import torch
from torch import nn

import tenterhook as th


def test_a_norm_below_the_limit_keeps_every_bit():
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    th.attach(model, th.Hook("clip", on="weight", at="grad_final", do=th.clip_zscore()), optimizer=optimizer)
    for size in (1e-7, 3e-9, 0.3):
        optimizer.zero_grad()
        model(torch.full((1, 2), size)).sum().backward()
        before = model.weight.grad.clone()
        optimizer.step()
        assert torch.equal(model.weight.grad, before)
