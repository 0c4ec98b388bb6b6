# TH218
"""The whole model in a reentrant checkpoint, on data: the loss has no graph."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
norms = []
for p in model.parameters():
    p.register_hook(lambda grad: norms.append(grad.norm()))
out = checkpoint(model, torch.randn(8, 4), use_reentrant=True)  # <- TH218
loss = out.square().mean()
loss.backward()  # <- TH218
result = norms
