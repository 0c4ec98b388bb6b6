# TH526
"""A hook that only stores the output returns the result of its last expression."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Identity())
kept = []


def keep(module, args, output):
    kept.append(output.detach())
    return kept


model[1].register_forward_hook(keep)  # <- TH526
out = model(torch.randn(2, 4))
result = len(out)
