# TH516
"""The gradients of a layer's output, by a backward hook inside of a compiled model."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


norms = []
model = Net()
model.head.register_full_backward_hook(lambda m, grads, outs: norms.append(outs[0].norm()))  # <- TH516
fast = torch.compile(model, backend="aot_eager")
for _ in range(3):
    fast(torch.randn(2, 4)).sum().backward()
result = [norms, model.body.weight.grad]
