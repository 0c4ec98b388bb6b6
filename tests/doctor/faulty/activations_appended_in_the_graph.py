# TH515
"""Collect the activations of a layer in a list, in a compiled model."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


activations = []


def keep(module, args, output):
    activations.append(output.detach())


model = Net()
model.body.register_forward_hook(keep)  # <- TH515
fast = torch.compile(model, backend="eager")
for _ in range(12):
    fast(torch.randn(2, 4)).sum().backward()
result = [activations, model.body.weight.grad]
