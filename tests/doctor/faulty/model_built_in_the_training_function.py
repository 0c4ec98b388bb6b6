# TH206
"""Hook a model, and call a training function that builds its own."""

import torch
from torch import nn


def build_model():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def train(steps):
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 4)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.detach()


model = build_model()
norms = []
model[2].weight.register_hook(lambda grad: norms.append(grad.norm()))  # <- TH206
result = [train(3), *norms]
