# TH418
"""Record the norm of .grad when all gradients have been computed."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
norms = []


def record(grads):
    norms.append(sum(p.grad.norm().item() for p in model.parameters() if p.grad is not None))


torch.autograd.graph.register_multi_grad_hook(tuple(model.parameters()), record)  # <- TH418
for _ in range(3):
    model.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
result = norms
