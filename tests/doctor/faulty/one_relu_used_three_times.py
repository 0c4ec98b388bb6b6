# TH402
"""Collect the gradient of the activation; one ReLU object serves three layers."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.act = nn.ReLU()

    def forward(self, x):
        for layer in self.layers:
            x = self.act(layer(x))
        return x


model = Net()
grads = []


def keep(module, grad_input, grad_output):
    grads.append(grad_output[0].detach().clone())


model.act.register_full_backward_hook(keep)  # <- TH402
model(torch.randn(2, 4)).sum().backward()
result = grads[0]
