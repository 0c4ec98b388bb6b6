# TH305
"""Let one layer learn ten times as fast by a factor on its gradient."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)


def boost(grad):
    return 10 * grad


model[2].weight.register_hook(boost)  # <- TH305
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(16, 4)).pow(2).mean().backward()
    optimizer.step()
result = model[2].weight.detach()
