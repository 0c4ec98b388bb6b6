# TH217
"""Hook a parametrized weight: each access computes a new tensor, and the hooked one is gone at once."""

import torch
from torch import nn
from torch.nn.utils import parametrize


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).T


layer = nn.Linear(3, 3)
parametrize.register_parametrization(layer, "weight", Symmetric())
layer.weight.register_hook(lambda grad: grad * 0)  # <- TH217
for _ in range(2):
    layer(torch.ones(2, 3)).sum().backward()
result = layer.parametrizations.weight.original.grad
