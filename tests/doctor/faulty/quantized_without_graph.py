# TH311
"""Round the activations of the first layer under no_grad, so the first layer does not train."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))


def quantize(module, args, output):
    with torch.no_grad():
        return (output * 16).round() / 16


model[1].register_forward_hook(quantize)  # <- TH311
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(3, 5, 4):
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
