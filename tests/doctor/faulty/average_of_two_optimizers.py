# TH415
"""Count the updates of two optimizers that step after the same backward pass. Each batch counts twice."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in model]
updates = []
for optimizer in optimizers:
    optimizer.register_step_post_hook(lambda *args: updates.append(1))  # <- TH415
for _ in range(4):
    model(torch.randn(3, 2)).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
result = len(updates)
