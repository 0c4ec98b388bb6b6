# TH503
"""Collect the activations of an epoch to look at them later."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
activations = []


def save_activation(module, args, output):
    activations.append(output)


model[1].register_forward_hook(save_activation)  # <- TH503
for batch in torch.randn(6, 8, 4):
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()
result = [a.detach() for a in activations]
