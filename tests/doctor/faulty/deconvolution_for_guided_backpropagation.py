# TH313
"""Guided backpropagation that returns the positive part of grad_output, which ignores the activations."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))


def guide(module, grad_input, grad_output):
    return (torch.clamp(grad_output[0], min=0.0),)


for module in model.modules():
    if isinstance(module, nn.ReLU):
        module.register_full_backward_hook(guide)  # <- TH313
image = torch.randn(1, 1, 6, 6, requires_grad=True)
model(image)[0, 1].backward()
result = image.grad
