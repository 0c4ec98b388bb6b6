# TH517
"""Collect activations in a list, in a model that is compiled as one graph."""

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
model = Net()
model.body.register_forward_hook(lambda module, args, output: activations.append(output.detach()))  # <- TH517
fast = torch.compile(model, backend="eager", fullgraph=True)
for _ in range(12):
    fast(torch.randn(2, 4)).sum().backward()
result = activations
