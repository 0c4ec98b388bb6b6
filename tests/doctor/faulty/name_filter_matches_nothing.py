# TH109
"""Freeze by gradient whatever is called "conv": this model has none of that name."""

import torch
from torch import nn

model = nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2))
for name, p in model.named_parameters():
    if "conv" in name:
        p.register_hook(torch.zeros_like)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(4, 1, 8)).square().mean().backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
