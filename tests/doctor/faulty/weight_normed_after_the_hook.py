# TH205
"""Hook the weight of a layer, and put weight norm on it: two other parameters stand in its place."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
model[0].weight.register_hook(lambda grad: grad.clamp(-0.001, 0.001))  # <- TH205
weight_norm(model[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = model[0].weight.detach()
