from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.support.leftovers import clear_compiled

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    clear_compiled()


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        for block in self.blocks:
            h = h + torch.tanh(block(h))
        return self.head(h)


@pytest.fixture
def mlp() -> MLP:
    torch.manual_seed(0)
    return MLP()


@pytest.fixture
def sgd(mlp: MLP) -> torch.optim.Optimizer:
    return torch.optim.SGD(mlp.parameters(), lr=0.1, momentum=0.9)


@pytest.fixture
def train() -> Callable[..., None]:
    """Return a function that runs plain training steps."""

    def run(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 1, *, micro: int = 1) -> None:
        for step in range(steps):
            optimizer.zero_grad()
            for i in range(micro):
                x = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + i))
                model(x).square().mean().backward()
            optimizer.step()

    return run
