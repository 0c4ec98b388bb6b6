# TH401
"""Give the gradient the norm one; there are two losses, each with its own backward."""

import torch
from torch import nn

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def to_unit_norm(grad):
    return grad / grad.norm().clamp(min=1e-6)


model.weight.register_hook(to_unit_norm)  # <- TH401
norms = []
for _ in range(3):
    optimizer.zero_grad()
    x = torch.randn(6, 4)
    model(x)[:, 0].pow(2).mean().backward()
    model(x).abs().mean().backward()
    norms.append(model.weight.grad.norm())
    optimizer.step()
result = norms
