# TH507
"""Scale each parameter by a factor from a dict; one name is not in it."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
factors = {"0.weight": 0.1, "0.bias": 0.1, "1.weight": 1.0}


def scaled(name):
    return lambda grad: grad * factors[name]


for name, p in model.named_parameters():
    p.register_hook(scaled(name))  # <- TH507
model(torch.randn(2, 3)).sum().backward()
result = model[0].weight.grad
