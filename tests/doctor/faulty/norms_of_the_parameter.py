# TH525
"""Log gradient norms after accumulation, but measure the parameters."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
norms = {}


def log(parameter):
    norms[parameter] = float(parameter.norm())


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(log)  # <- TH525
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 4)).square().mean().backward()
    optimizer.step()
result = sorted(norms.values())
