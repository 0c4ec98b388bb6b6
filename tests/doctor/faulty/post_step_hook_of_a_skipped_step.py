# TH212
"""Renormalize the weights after the step, which a bad batch with an infinity made the scaler skip."""

import torch
from torch import nn


@torch.no_grad()
def renormalize(optimizer, args, kwargs):
    for p in optimizer.param_groups[0]["params"]:
        p /= p.norm()


model = nn.Linear(4, 2, bias=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
optimizer.register_step_post_hook(renormalize)  # <- TH212
scaler = torch.amp.GradScaler("cpu")
x = torch.randn(8, 4)
x[3, 1] = torch.inf
scaler.scale(model(x).square().mean()).backward()
scaler.step(optimizer)
scaler.update()
result = model.weight.detach()
