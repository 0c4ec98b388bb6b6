# TH409 TH501
"""Halve the gradient in place; the hook is put on in every step."""

import torch
from torch import nn

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def halve(grad):
    grad *= 0.5


norms = []
for batch in torch.randn(5, 8, 4):
    model.weight.register_hook(halve)  # <- TH409 TH501
    optimizer.zero_grad()
    (model(batch) - 1).pow(2).mean().backward()
    norms.append(model.weight.grad.norm())
    optimizer.step()
result = norms
