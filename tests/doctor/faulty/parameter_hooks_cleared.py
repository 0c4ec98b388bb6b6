# TH605
"""Clip one layer; a clean-up of another part empties the parameters' hooks."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
model[2].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))  # <- TH605
peaks = []
for epoch in range(3):
    if epoch == 1:
        for p in model.parameters():
            if p._backward_hooks:
                p._backward_hooks.clear()
    model.zero_grad()
    model(torch.ones(4, 3)).sum().backward()
    peaks.append(model[2].weight.grad.abs().max())
result = peaks
