# TH405
"""Triple the gradient of each tower's weight; both towers are one layer."""

import torch
from torch import nn

tower = nn.Linear(3, 2)
model = nn.ModuleDict({"query": tower, "passage": tower})


def triple(grad):
    return 3 * grad


for key in model:
    model[key].weight.register_hook(triple)  # <- TH405
a, b = torch.randn(4, 3), torch.randn(4, 3)
(model["query"](a) * model["passage"](b)).sum().backward()
result = tower.weight.grad
