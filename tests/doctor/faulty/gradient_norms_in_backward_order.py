# TH416
"""Append the norm of each layer's gradient to a list, and read the list in the order of the layers."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))
names, norms = [], []


def keep_norm(module, grad_input, grad_output):
    norms.append(grad_output[0].norm().detach())


for name, module in model.named_children():
    if isinstance(module, nn.Linear):
        names.append(name)
        module.register_full_backward_hook(keep_norm)  # <- TH416
model(torch.randn(3, 4, requires_grad=True)).sum().backward()
result = dict(zip(names, norms))
