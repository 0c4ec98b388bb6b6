"""Limit a gradient only when it is large: the hook returns a new one then, and nothing when there is nothing to do."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
limited = []


def limit(grad):
    norm = grad.norm()
    if norm > 1.0:
        limited.append(norm.item())
        return grad / norm


def drop_outliers(grad):
    cleaned = grad.clone()
    cleaned[cleaned.abs() > 3 * grad.std()] = 0
    return cleaned


for param in model.parameters():
    param.register_hook(limit)
model[0].weight.register_hook(drop_outliers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for step in range(10):
    x = torch.randn(16, 4) * (5 if step % 3 == 0 else 0.3)
    loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, limited, [p.detach().clone() for p in model.parameters()]]
