# TH105
"""Clip what the optimizer will use, and do not say which optimizer."""

import torch
from torch import nn

import tenterhook as th

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
th.hook(model, th.clip_norm(1.0, over="hook"), on="**", at="grad_final")  # <- TH105
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
