# TH419
"""Clip the gradients in a step hook, with an optimizer that is given a closure."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def clip(optimizer, args, kwargs):
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                p.grad.clamp_(-0.1, 0.1)


def closure():
    optimizer.zero_grad()
    loss = model(10 * torch.ones(1, 2)).pow(2).sum()
    loss.backward()
    return loss


optimizer.register_step_pre_hook(clip)  # <- TH419
for _ in range(2):
    optimizer.step(closure)
result = model.weight
