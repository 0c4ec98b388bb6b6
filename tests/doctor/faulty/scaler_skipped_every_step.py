# TH212
"""Decay a rate before each step by a step hook; the loss overflows, and the scaler skips every step."""

import torch
from torch import nn

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
steps = []


def count(optimizer, args, kwargs):
    steps.append(1)


optimizer.register_step_pre_hook(count)  # <- TH212
for _ in range(3):
    optimizer.zero_grad()
    loss = (model(torch.randn(8, 4)) * 1e30).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
result = [model.weight.detach(), torch.tensor(len(steps))]
