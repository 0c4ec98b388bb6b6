# TH309
"""Limit the norm of one layer's gradient under autocast, in the hook."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu")


def limit_norm(grad, max_norm=1.0):
    return grad * (max_norm / grad.norm()).clamp(max=1.0)


model[0].weight.register_hook(limit_norm)  # <- TH309
for _ in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(16, 4)).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
result = model[0].weight.detach()
