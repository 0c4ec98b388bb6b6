# TH401 TH403
"""Clamp the weight's gradient per micro-batch, and double the bias's by a hook that is on it twice."""

import torch
from torch import nn

model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def clamp(grad):
    return grad.clamp(-0.5, 0.5)


def double(grad):
    return grad * 2


model.weight.register_hook(clamp)  # <- TH401
handles = [model.bias.register_hook(double)]  # <- TH403
handles += [model.bias.register_hook(double)]  # <- TH403
for i, batch in enumerate(torch.rand(6, 4, 3) + 1):
    model(batch).sum().backward()
    if i % 3 == 2:
        optimizer.step()
        optimizer.zero_grad()
result = [model.weight.detach(), model.bias.detach()]
