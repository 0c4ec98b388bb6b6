# TH308
"""Mask a row of the gradient; model.zero_grad(set_to_none=False) wipes it before the step."""

import torch
from torch import nn

model = nn.Linear(5, 2)
mask = torch.tensor([[1.0], [0.0]])


def keep_first_row(grad):
    return grad * mask


model.weight.register_hook(keep_first_row)  # <- TH308
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
before = model.weight.detach().clone()
for batch in torch.randn(3, 6, 5):
    model(batch).pow(2).mean().backward()
    model.zero_grad(set_to_none=False)
    optimizer.step()
result = (model.weight - before).detach()
