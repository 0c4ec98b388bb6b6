# TH508
"""Watch the gradients of a convolution that is followed by ReLU(inplace=True)."""

import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8, 1))
norms = []
model[0].register_full_backward_hook(lambda m, gi, go: norms.append(go[0].norm()))  # <- TH508
model(torch.randn(2, 1, 4, 4)).sum().backward()
result = norms
