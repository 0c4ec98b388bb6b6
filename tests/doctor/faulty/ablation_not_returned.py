# TH301
"""Assign a new value to the argument, and return nothing."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
mean = torch.zeros(4)


def ablate(module, args, output):
    output = mean.expand_as(output)


model[0].register_forward_hook(ablate)  # <- TH301
result = model(torch.ones(2, 3)).detach()
