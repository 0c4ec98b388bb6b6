# TH511
"""Clamp grad_input of a layer; for a batch of one the tensor is taken for a tuple of its rows."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def clamp(module, grad_input, grad_output):
    return grad_input[0].clamp(-0.1, 0.1)


model[1].register_full_backward_hook(clamp)  # <- TH511
model(torch.randn(1, 3)).sum().backward()
result = model[0].weight.grad
