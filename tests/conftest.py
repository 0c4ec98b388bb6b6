from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.support.leftovers import clear_compiled

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1)

#: the marks of the tests that are not fast; each is a stage of `scripts/check`
LONG = ("ranks", "pages", "programs", "compiled")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the fast tests, and run the long ones first: one that started last would keep all but one worker waiting."""
    if os.environ.get("CI_SLICE"):
        left_out = outside_the_slice(items)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    fast = [item for item in items if not any(item.get_closest_marker(mark) for mark in LONG)]
    for item in fast:
        item.add_marker("fast")
    items.sort(key=lambda item: item.get_closest_marker("fast") is not None)


def outside_the_slice(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that `.ci/run` leaves out: of those with the mark `slice(n)`, all but each n-th of a file."""
    seen: Counter[Path] = Counter()
    left_out = set()
    for item in items:
        mark = item.get_closest_marker("slice")
        if mark is not None:
            if seen[item.path] % mark.args[0]:
                left_out.add(item)
            seen[item.path] += 1
    return left_out


@pytest.fixture(autouse=True)
def nothing_left_over() -> None:
    """Clear the state of the last test, and take what is left out of the garbage collector's later passes.

    Exams collect garbage often, and each pass would visit the objects of all the libraries that were imported.
    """
    clear_compiled()
    gc.collect()
    gc.freeze()


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
