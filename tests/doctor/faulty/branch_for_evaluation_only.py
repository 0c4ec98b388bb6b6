# TH213
"""Watch the gradients of a projection that the model calls in evaluation only."""

import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.project = nn.Linear(8, 2)

    def forward(self, x):
        h = self.body(x).tanh()
        return h if self.training else self.project(h)


model, grads = Embedder(), []
model.project.register_full_backward_hook(lambda m, gi, go: grads.append(go[0].norm()))  # <- TH213
for _ in range(2):
    model(torch.randn(4, 4)).square().mean().backward()
result = [model.body.weight.grad, *grads]
