# TH520
"""A loop registers a closure for each layer, but all closures use the last name."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
activations = {}
for name, module in model.named_modules():
    if isinstance(module, nn.Linear):
        module.register_forward_hook(lambda m, args, out: activations.__setitem__(name, out.detach()))  # <- TH520
model(torch.randn(3, 4))
result = sorted(activations)
