"""Learn a steering vector: a forward hook adds it to a middle layer of a frozen model; only the vector is trained."""

import torch
import torch.nn.functional as F
from torch import nn

backbone = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
backbone.requires_grad_(False)
steering = nn.Parameter(torch.zeros(32))
strength = nn.Parameter(torch.ones(()))

handle = backbone[2].register_forward_hook(lambda module, args, output: output + strength * steering)
optimizer = torch.optim.Adam([steering, strength], lr=0.05)
x = torch.randn(64, 8)
losses = []
for step in range(8):
    optimizer.zero_grad()
    loss = F.cross_entropy(backbone(x), torch.full((64,), 2))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
handle.remove()
result = [losses, steering.detach(), strength.detach(), [p.detach().clone() for p in backbone.parameters()]]
