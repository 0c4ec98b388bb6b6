# TH226
"""Grad-CAM: keep the activations in a forward hook, and hook their gradient after the call."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


kept, grads = {}, []
model = Net()
model.body.register_forward_hook(lambda module, args, output: kept.update(activations=output))
fast = torch.compile(model, backend="aot_eager")
score = fast(torch.randn(2, 4)).sum()
kept["activations"].register_hook(lambda grad: grads.append(grad))  # <- TH226
score.backward()
result = [grads, model.body.weight.grad]
