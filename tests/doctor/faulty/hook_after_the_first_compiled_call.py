# TH209
"""Warm up a compiled model, and then hook a layer to collect its activations."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.encoder(x)))


model = torch.compile(Net(), backend="eager")
model(torch.randn(2, 4))
activations = []
model.encoder.register_forward_hook(lambda m, args, out: activations.append(out.detach()))  # <- TH209
for _ in range(3):
    model(torch.randn(2, 4)).sum().backward()
result = activations
