# TH107
"""Train with a hook that masks the gradient, save its handle, and go on with a fresh model."""

import tempfile

import torch
from torch import nn


def mask_first_row(grad):
    grad = grad.clone()
    grad[0] = 0
    return grad


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 3)).square().mean().backward()
        optimizer.step()


model = nn.Linear(3, 2)
handle = model.weight.register_hook(mask_first_row)
train(model, 2)
with tempfile.TemporaryFile() as file:
    torch.save((model.state_dict(), handle), file)
    file.seek(0)
    weights, handle = torch.load(file, weights_only=False)  # <- TH107
model = nn.Linear(3, 2)
model.load_state_dict(weights)
train(model, 2)
result = [weights["weight"][0], model.weight.detach()[0]]
