# TH219
"""The gradient with respect to the input by torch.func.grad, through a layer with a backward pre-hook."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
model[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))  # <- TH219
result = torch.func.grad(lambda x: model(x).sum())(torch.randn(3))
