# TH533
"""Ablate one unit and keep the activations; what is kept is the output before the ablation."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1))
activations = {}


def ablate(module, args, output):
    activations["relu"] = output
    mask = torch.ones(5)
    mask[2] = 0
    return output * mask


model[1].register_forward_hook(ablate)  # <- TH533
with torch.no_grad():
    outputs = [model(batch) for batch in torch.randn(3, 2, 4)]
result = [activations["relu"], outputs]
