# TH303
"""Train one convolution ten times more slowly, by its module hook."""

import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Conv2d(2, 2, 2), nn.Flatten(), nn.Linear(2, 1))


def slow_down(module, grad_input, grad_output):
    return tuple(None if g is None else g * 0.1 for g in grad_input)


model[2].register_full_backward_hook(slow_down)  # <- TH303
model(torch.randn(3, 1, 4, 4)).pow(2).sum().backward()
result = [model[2].weight.grad, model[0].weight.grad]
