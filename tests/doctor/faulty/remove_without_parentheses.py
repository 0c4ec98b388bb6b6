# TH607
"""Count the calls of the first batch only."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
counts = torch.zeros(1)


def count(module, args, output):
    counts.add_(1)


handles = [layer.register_forward_hook(count) for layer in model]
model(torch.ones(1, 2))
for handle in handles:
    handle.remove  # <- TH607
model(torch.ones(1, 2))
result = counts
