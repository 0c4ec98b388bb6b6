# TH546
"""Cache outputs under the id of the input, which another tensor may get."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 2)
cache = {}


def remember(module, args, output):
    cache[id(args[0])] = output.detach().clone()


model.register_forward_hook(remember)  # <- TH546
for number in range(3):
    model(torch.full((1, 3), float(number)))
result = model.weight
