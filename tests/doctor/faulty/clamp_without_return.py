# TH301
"""Clamp the gradient of the first layer's weight while training."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(16, 4), torch.randn(16, 1)


def clip_gradient(grad):
    grad.clamp(-0.01, 0.01)


model[0].weight.register_hook(clip_gradient)  # <- TH301
for epoch in range(3):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
result = [model[0].weight.detach(), model[0].weight.grad]
