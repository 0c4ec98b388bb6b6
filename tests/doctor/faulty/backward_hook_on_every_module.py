# TH602
"""Collect gradients of a model by a global backward hook; the loss module is in it too."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
names = []


def collect(module, grad_input, grad_output):
    names.append(type(module).__name__)


handle = nn.modules.module.register_module_full_backward_hook(collect)  # <- TH602
x = torch.randn(2, 3, requires_grad=True)
nn.SmoothL1Loss()(model(x), torch.zeros(2, 1)).backward()
handle.remove()
result = names
