# TH503
"""Sum up the activation norms; the sum carries the graph of every batch."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
totals = {"hidden": 0.0}


def add_norm(module, args, output):
    totals["hidden"] = totals["hidden"] + output.norm()


model[1].register_forward_hook(add_norm)  # <- TH503
for batch in torch.randn(6, 8, 4):
    model.zero_grad()
    model(batch).pow(2).mean().backward()
result = totals["hidden"].detach()
