# TH409
"""Run a cell of a notebook several times, each time with another strength."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))


def steer(strength):
    def add(module, args, output):
        return output + strength

    return add


handle = model[0].register_forward_hook(steer(1.0))  # <- TH409
first = model(torch.ones(2, 3))
handle = model[0].register_forward_hook(steer(-1.0))
result = model(torch.ones(2, 3))
