# TH406
"""Curvature of the loss along the gradient, with a gradient hook left on the weight."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
model[0].weight.register_hook(lambda grad: grad / 2)  # <- TH406
x = torch.randn(6, 3)
loss = model(x).pow(2).mean()
loss.backward(create_graph=True)
first = [p.grad for p in model.parameters()]
for p in model.parameters():
    p.grad = None
sum(g.pow(2).sum() for g in first).backward()
result = model[0].weight.grad
