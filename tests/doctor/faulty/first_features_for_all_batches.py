# TH526
"""Keep the first features with setdefault, and replace the features of all later batches with them."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
features = {}
model[0].register_forward_hook(lambda module, args, output: features.setdefault("first", output.detach()))  # <- TH526
with torch.no_grad():
    result = [model(torch.randn(3, 4)) for _ in range(3)]
