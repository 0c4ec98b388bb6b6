# TH511
"""Halve grad_input; the hook returns a tensor and not a tuple."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
model[1].register_full_backward_hook(lambda m, grad_input, grad_output: grad_input[0] * 0.5)  # <- TH511
model(torch.randn(5, 3)).sum().backward()
result = model[0].weight.grad
