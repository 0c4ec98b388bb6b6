# TH211
"""A helper that cleans up after itself: it puts hooks on, runs the model, and removes them before the backward."""

import torch
from torch import nn


def forward_with_clipping(model, x, limit):
    handles = [p.register_hook(lambda grad: grad.clamp(-limit, limit)) for p in model.parameters()]  # <- TH211
    try:
        return model(x)
    finally:
        for handle in handles:
            handle.remove()


model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    forward_with_clipping(model, torch.randn(8, 4), 1e-4).square().mean().backward()
    optimizer.step()
result = model[0].weight.grad
