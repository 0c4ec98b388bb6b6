# TH515
"""Warm up: the output of a layer is scaled by how often it was called."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


class WarmUp:
    def __init__(self):
        self.calls = 0

    def __call__(self, module, args, output):
        self.calls += 1
        return output * min(1.0, self.calls / 10)


model = Net()
model.body.register_forward_hook(WarmUp())  # <- TH515
fast = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    (fast(torch.ones(2, 4)) - 1).square().mean().backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
