# TH302
"""Clamp to a limit that no gradient comes near."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model[0].weight.register_hook(lambda grad: grad.clamp(-100.0, 100.0))  # <- TH302
for batch in torch.randn(3, 8, 4):
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()
result = model[0].weight.detach()
