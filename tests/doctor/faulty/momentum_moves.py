# TH304
"""Stop a layer after some steps by a zero gradient; momentum carries it on."""

import torch
from torch import nn

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x, y = torch.randn(8, 3), torch.randn(8, 1)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


train(3)
before = model.weight.detach().clone()
model.weight.register_hook(lambda grad: torch.zeros_like(grad))  # <- TH304
train(3)
result = (model.weight - before).detach()
