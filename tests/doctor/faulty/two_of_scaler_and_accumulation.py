# TH309 TH401
"""Clamp in a hook, with a loss scale and two micro-batches for one step."""

import torch
from torch import nn

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
model.weight.register_hook(lambda grad: grad.clamp(-1, 1))  # <- TH309 TH401
for _ in range(3):
    optimizer.zero_grad()
    for batch in torch.rand(2, 8, 4) + 1:
        scaler.scale(model(batch).mean() / 2).backward()
    scaler.step(optimizer)
    scaler.update()
result = model.weight.detach()
