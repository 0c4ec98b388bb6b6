# TH204
"""Grad-CAM in an evaluation function: the activation is hooked, and was made under no_grad."""

import torch
from torch import nn

conv, head = nn.Conv2d(1, 3, 3), nn.Linear(3, 2)


@torch.no_grad()
def explain(image):
    grads = []
    activation = conv(image).relu()
    activation.register_hook(grads.append)  # <- TH204
    head(activation.mean((2, 3)))[0, 1].backward()
    return grads


result = explain(torch.rand(1, 1, 6, 6))
