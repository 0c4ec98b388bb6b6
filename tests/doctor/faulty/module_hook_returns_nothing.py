# TH301
"""Halve the gradient that a layer hands to the layers before it."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.encoder(x)))


def halve(module, grad_input, grad_output):
    new_grad_input = (grad_input[0] * 0.5,)


model = Net()
model.head.register_full_backward_hook(halve)  # <- TH301
model(torch.randn(5, 4)).sum().backward()
result = model.encoder.weight.grad
