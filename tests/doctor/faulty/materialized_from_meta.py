# TH205
"""Build on the meta device, hook every weight, and only then give the model memory."""

import torch
from torch import nn

with torch.device("meta"):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
norms = []
for p in model.parameters():
    p.register_post_accumulate_grad_hook(lambda p: norms.append(p.grad.norm()))  # <- TH205
model.to_empty(device="cpu")
for layer in (model[0], model[2]):
    layer.reset_parameters()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = norms
