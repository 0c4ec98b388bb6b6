# TH401
"""Clip to 0.1 in a hook, with four micro-batches for one step."""

import torch
from torch import nn

model = nn.Linear(3, 1)
model.weight.register_hook(lambda grad: torch.clamp(grad, -0.1, 0.1))  # <- TH401
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(8, 5, 3) + 1
largest = []
for i, batch in enumerate(data):
    model(batch).sum().backward()
    if (i + 1) % 4 == 0:
        largest.append(model.weight.grad.abs().max())
        optimizer.step()
        optimizer.zero_grad()
result = largest
