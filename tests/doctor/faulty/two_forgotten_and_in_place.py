# TH301 TH501
"""Clip the first layer's gradient and scale the hidden state's: one returns nothing, one writes into its argument."""

import torch
from torch import nn

encoder, head = nn.Linear(4, 8), nn.Linear(8, 1)


def clip(grad):
    grad = torch.clamp(grad, -0.01, 0.01)


def scale(grad):
    return grad.mul_(0.5)


encoder.weight.register_hook(clip)  # <- TH301
for batch in torch.randn(2, 6, 4):
    encoder.zero_grad()
    hidden = encoder(batch)
    hidden.register_hook(scale)  # <- TH501
    (head(hidden.relu()) - 1).pow(2).sum().backward()
result = encoder.weight.grad
