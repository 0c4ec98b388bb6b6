"""Defines a small model of two blocks of one class, and the ways to compile it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def build(how: str, backend: str = "aot_eager") -> tuple[Stack, Any]:
    """Return the model, and the callable that runs it."""
    torch.manual_seed(0)
    model = Stack()
    if how == "eager":
        return model, model
    if how == "whole":
        return model, torch.compile(model, backend=backend, fullgraph=True)
    if how == "function":
        return model, torch.compile(lambda x: model(x), backend=backend, fullgraph=True)
    for block in model.blocks:
        block.compile(backend=backend, fullgraph=True)
    return model, model


def batch(step: int) -> Tensor:
    """Return a batch, with one of two shapes in alternation."""
    return torch.randn(2 + step % 2, 4, generator=torch.Generator().manual_seed(step))


def graphs() -> int:
    """Return the number of graphs that were compiled so far."""
    return int(counters["stats"]["unique_graphs"])
