# TH501
"""Scale the gradient of the logits with `*=`."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def scale(grad):
    grad *= 0.1
    return grad


inputs, labels = torch.randn(6, 4), torch.randint(0, 3, (6,))
for _ in range(2):
    model.zero_grad()
    logits = model(inputs)
    logits.register_hook(scale)  # <- TH501
    nn.functional.cross_entropy(logits, labels).backward()
result = model[0].weight.grad
