# TH516
"""Print the shape of what a layer of a compiled model gives."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


def show(module, args, output):
    print(type(module).__name__, tuple(output.shape))


model = Net()
model.body.register_forward_hook(show)  # <- TH516
fast = torch.compile(model, backend="eager")
for _ in range(3):
    fast(torch.randn(2, 4)).sum().backward()
result = model.body.weight.grad
