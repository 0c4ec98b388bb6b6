# TH210
"""Sum the norms once all gradients are there, by a hook on several leaves, which autograd.grad cannot run."""

import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

model = nn.Linear(4, 1)
totals = []
weights = list(model.parameters())
register_multi_grad_hook(weights, lambda grads: totals.append(sum(g.norm() for g in grads)))  # <- TH210
loss = model(torch.randn(8, 4)).square().mean()
grads = torch.autograd.grad(loss, weights)  # <- TH210
result = [*grads, *totals]
