# TH551
"""Multiply each gradient by its mask. The hooks of the loop all use the last mask."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
masks = {name: (torch.rand(3, 3) > 0.5).float() for name, _ in model.named_parameters()}
for name, weight in model.named_parameters():
    weight.register_hook(lambda grad: grad * masks[name])  # <- TH551
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
result = all(bool(((weight == before[name]) >= (masks[name] == 0)).all()) for name, weight in model.named_parameters())
