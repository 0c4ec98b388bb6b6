# TH502
"""Weigh activations by their gradients: the tensor hook has the activation as a default argument."""

import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
maps = []


def hook_output(module, args, output):
    output.register_hook(lambda grad, out=output: maps.append((grad * out.detach()).mean(1)))  # <- TH502


model[1].register_forward_hook(hook_output)
for image in torch.randn(4, 1, 1, 4, 4):
    model(image)[0, 1].backward()
result = maps
