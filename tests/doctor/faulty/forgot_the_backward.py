# TH214
"""A first training loop, without the line that runs backward."""

import torch
from torch import nn

model = nn.Linear(3, 1)
norms = []
for p in model.parameters():
    p.register_hook(lambda grad: norms.append(grad.norm()))  # <- TH214
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 3)).square().mean()
    optimizer.step()
result = [model.weight.detach(), *norms]
