# TH411
"""The optimizer steps in the backward to save memory; the clip of the norm comes after."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizers = {p: torch.optim.SGD([p], lr=0.001) for p in model.parameters()}


def step_now(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step_now)  # <- TH411
norms = []
for batch in torch.randn(3, 8, 4):
    model(batch * 10).pow(2).mean().backward()
    norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))  # <- TH411
result = [model[0].weight.detach(), norms]
