# TH204
"""One more training step in a notebook, in a cell that still has the no_grad of the evaluation."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
norms = []
model[0].weight.register_hook(lambda grad: norms.append(grad.norm()))
with torch.no_grad():
    loss = model(torch.randn(8, 3)).square().mean()
    loss.backward()  # <- TH204
result = norms
