# TH203 TH301
"""Freeze a layer that has a hook, and forget the return in the other layer's."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def sparsify(grad):
    grad = torch.where(grad.abs() > 0.1, grad, torch.zeros_like(grad))


model[0].weight.register_hook(lambda grad: grad * 2)  # <- TH203
model[2].weight.register_hook(sparsify)  # <- TH301
for p in model[0].parameters():
    p.requires_grad_(False)
for batch in torch.randn(3, 8, 4):
    optimizer.zero_grad()
    (model(batch) - 1).pow(2).mean().backward()
    optimizer.step()
result = model[2].weight.detach()
