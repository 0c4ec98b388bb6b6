# TH301
"""Set one unit of a layer's output to zero, on a copy that is not returned."""

import torch
from torch import nn


class Ablation:
    def __init__(self, unit):
        self.unit = unit

    def hook(self, module, args, output):
        ablated = output.clone()
        ablated[:, self.unit] = 0.0


model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
x = torch.randn(5, 3)
before = model(x)
model[1].register_forward_hook(Ablation(unit=2).hook)  # <- TH301
after = model(x)
result = (after - before).detach()
