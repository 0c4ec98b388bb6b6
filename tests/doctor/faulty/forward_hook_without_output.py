# TH507
"""A pre-hook's function is registered as a forward hook."""

import torch
from torch import nn

model = nn.Linear(3, 2)
shapes = []
model.register_forward_hook(lambda module, inputs: shapes.append(inputs[0].shape))  # <- TH507
model(torch.randn(2, 3)).sum().backward()
result = model.weight.grad
