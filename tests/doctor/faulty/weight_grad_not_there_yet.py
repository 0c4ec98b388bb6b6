# TH407
"""Read the weight's gradient inside the backward hook of the first layer."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
norms = []


def log_weight_gradient(module, grad_input, grad_output):
    grad = module.weight.grad
    norms.append(torch.zeros(()) if grad is None else grad.norm())


model[0].register_full_backward_hook(log_weight_gradient)  # <- TH407
for batch in torch.randn(3, 8, 4):
    model.zero_grad()
    model(batch).pow(2).mean().backward()
result = norms
