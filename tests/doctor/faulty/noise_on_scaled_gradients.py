# TH309
"""Add noise to gradients that are multiplied by a loss scale."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
model.weight.register_hook(lambda grad: grad + 0.1 * torch.randn_like(grad))  # <- TH309
for _ in range(3):
    optimizer.zero_grad()
    scaler.scale(model(torch.ones(1, 2)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
result = model.weight
