# TH310
"""Two models are made; the optimizer holds the first, the second is trained."""

import torch
from torch import nn


def make():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


model = make()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = make()
model[0].weight.register_hook(lambda grad: grad.sign())  # <- TH310
before = model[0].weight.detach().clone()
for _ in range(3):
    loss = model(torch.randn(8, 3)).pow(2).mean()
    loss.backward()
    optimizer.step()
    model.zero_grad()
result = (model[0].weight - before).detach()
