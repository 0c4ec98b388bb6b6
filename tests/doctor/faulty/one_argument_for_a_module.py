# TH507
"""A function of one gradient is registered as a module's backward hook."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def clip(grad):
    return grad.clamp(-1, 1)


model[0].register_full_backward_hook(clip)  # <- TH507
x = torch.randn(2, 3, requires_grad=True)
result = None
model(x).sum().backward()
result = model[0].weight.grad
