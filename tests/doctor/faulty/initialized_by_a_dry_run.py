# TH424
"""Initialize a layer from its first batch, which is that of a dry run."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))


def initialize(module, args):
    with torch.no_grad():
        module.bias.copy_(-args[0].mean())
    handle.remove()


handle = model[1].register_forward_pre_hook(initialize)  # <- TH424
with torch.no_grad():
    model(torch.zeros(1, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(4, 3)).square().mean().backward()
    optimizer.step()
result = model[1].bias
