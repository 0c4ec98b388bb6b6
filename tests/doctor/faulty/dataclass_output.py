# TH208
"""A model that returns a dataclass, as many libraries do, with a hook for the gradient of its output."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class ModelOutput:
    logits: torch.Tensor
    hidden: torch.Tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        hidden = self.body(x).relu()
        return ModelOutput(self.head(hidden), hidden)


model = Net()
model.register_full_backward_pre_hook(lambda m, go: tuple(g * 0 for g in go))  # <- TH208
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    out = model(torch.randn(4, 4))
    nn.functional.cross_entropy(out.logits, torch.tensor([0, 1, 1, 0])).backward()
    optimizer.step()
result = model.head.weight.grad
