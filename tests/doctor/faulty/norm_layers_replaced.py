# TH227
"""Watch the outputs of batch norm layers, which are then replaced by group norm."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
scales = []
for module in model:
    if isinstance(module, nn.BatchNorm2d):
        module.register_forward_hook(lambda m, args, out: scales.append(out.detach().std()))  # <- TH227
del module
model(torch.randn(2, 3, 8, 8))
for name, module in list(model.named_children()):
    if isinstance(module, nn.BatchNorm2d):
        setattr(model, name, nn.GroupNorm(2, module.num_features))
for _ in range(3):
    model(torch.randn(2, 3, 8, 8)).square().mean().backward()
result = scales
