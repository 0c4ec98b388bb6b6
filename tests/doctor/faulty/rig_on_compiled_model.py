# TH105
"""Look at what a layer of a compiled model gives to the gradient of its input."""

import torch
from torch import nn

import tenterhook as th

model = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), backend="eager")
kept = []
th.hook(model, lambda grad: kept.append(grad.clone()), on="2", at="grad_input")  # <- TH105
model(torch.randn(2, 4)).sum().backward()
result = kept
