# TH309
"""Clamp gradients to one while a GradScaler multiplies the loss."""

import torch
from torch import nn

model = nn.Linear(4, 1)
model.weight.register_hook(lambda grad: grad.clamp(-1.0, 1.0))  # <- TH309
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
before = model.weight.detach().clone()
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 4)).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
result = (model.weight - before).detach()
