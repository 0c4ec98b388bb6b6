# TH529
"""Add noise to each batch in place; the batches are parts of the data, which get noisier in each epoch."""

import torch
from torch import nn

torch.manual_seed(0)
data = torch.zeros(6, 3)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def add_noise(module, args):
    if module.training:
        args[0].add_(torch.randn_like(args[0]))


model.register_forward_pre_hook(add_noise)  # <- TH529
for _ in range(4):
    for start in range(0, 6, 2):
        model(data[start : start + 2]).pow(2).mean().backward()
result = data
