# TH221
"""Compile the whole model into one graph, with a full backward hook on a layer."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
norms = []
model[0].register_full_backward_hook(lambda m, gi, go: norms.append(go[0].norm()))  # <- TH221
compiled = torch.compile(model, backend="eager", fullgraph=True)
compiled(torch.randn(2, 4)).sum().backward()
result = norms
