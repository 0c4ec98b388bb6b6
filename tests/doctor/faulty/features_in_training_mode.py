# TH541
"""Extract features without gradients, and forget eval()."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
features = []
model[1].register_forward_hook(lambda module, args, output: features.append(output.clone()))  # <- TH541
with torch.no_grad():
    for _ in range(2):
        model(torch.ones(2, 3))
result = torch.stack(features)
