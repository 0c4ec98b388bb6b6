# TH301 TH308
"""One hook does not return its mask; the other's work is cleared before the step."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mask = (torch.arange(32).reshape(8, 4) % 2).float()


def prune(grad):
    masked = grad * mask


model[0].weight.register_hook(prune)  # <- TH301
model[2].weight.register_hook(lambda grad: grad * 3)  # <- TH308
for batch in torch.randn(3, 8, 4):
    model(batch).pow(2).mean().backward()
    model[2].zero_grad()
    optimizer.step()
    optimizer.zero_grad()
result = [p.detach() for p in model.parameters()]
