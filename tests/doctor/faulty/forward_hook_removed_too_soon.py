# TH211
"""Put a hook on to take the features, and remove it before the batch is run."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
features = []
handle = model[1].register_forward_hook(lambda m, args, out: features.append(out.detach()))  # <- TH211
handle.remove()
for _ in range(2):
    model(torch.randn(2, 4)).sum().backward()
result = features
