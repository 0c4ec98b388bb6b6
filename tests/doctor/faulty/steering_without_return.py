# TH301
"""Add a direction to the output of a block, as in activation steering."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
direction = torch.ones(4) * 10


def steer(module, args, output):
    output = output + direction


x = torch.randn(3, 4)
plain = model(x)
model[0].register_forward_hook(steer)  # <- TH301
steered = model(x)
result = (steered - plain).detach()
