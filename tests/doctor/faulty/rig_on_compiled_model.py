# TH105
"""Keep the activations of a layer of a model that is compiled already."""

import torch
from torch import nn

import tenterhook as th

model = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), backend="eager")
kept = []
th.hook(model, lambda out: kept.append(out.clone()), on="1", at="output")  # <- TH105
model(torch.randn(2, 4)).sum().backward()
result = kept
