# TH201
"""When the loss is large, look at the gradients that enter each layer: of this very backward, as was meant."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
seen = []
target = torch.full((8, 1), 50.0)
loss = (model(torch.randn(8, 4)) - target).square().mean()
if loss > 100:
    for layer in model:
        layer.register_full_backward_pre_hook(lambda m, go: seen.append(go[0].norm()))  # <- TH201
loss.backward()
result = seen
