# TH103
"""Scale the gradient of an embedding by name, though it was frozen before."""

import torch
from torch import nn

import tenterhook as th

model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2))
model[0].weight.requires_grad_(False)
th.hook(model, th.scale(0.1), on="0.weight", at="grad")  # <- TH103
model(torch.randint(10, (2, 3))).sum().backward()
result = model[2].weight.grad
