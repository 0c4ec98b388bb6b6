"""Defines a model with a gradient that is easy to compute by hand, with or without an activation checkpoint."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tenterhook as th


class Squared(nn.Module):
    """Computes (w x)^2 with w = 3, and taps w x. If w x is scaled by k, the gradient of w at x = 1 is 6 k^2."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.inner.weight, 3.0)
        self.reentrant = reentrant

    def run(self, x: Tensor) -> Tensor:
        return th.tap(self.inner(x), "p", within=self).square()

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x) if self.reentrant is None else checkpoint(self.run, x, use_reentrant=self.reentrant)


def x() -> Tensor:
    return torch.ones(1, requires_grad=True)


def gradient(model: Squared, out: Tensor) -> float:
    model.zero_grad()
    out.backward()
    return model.inner.weight.grad.item()
