# TH536
"""Clamp the weights of a critic in a pre-hook; the weights after the last step are not clamped."""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(), nn.Linear(6, 1))


def clamp(module, args):
    with torch.no_grad():
        for p in module.parameters():
            p.clamp_(-0.01, 0.01)


for module in critic.modules():
    if isinstance(module, nn.Linear):
        module.register_forward_pre_hook(clamp)  # <- TH536
optimizer = torch.optim.SGD(critic.parameters(), lr=0.5)
for batch in torch.randn(3, 5, 4):
    optimizer.zero_grad()
    critic(batch).mean().backward()
    optimizer.step()
result = [p.detach() for p in critic.parameters()]
