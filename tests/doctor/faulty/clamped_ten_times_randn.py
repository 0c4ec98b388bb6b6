# TH307
"""Clamp the gradient of a tensor and print it; the tensor was multiplied after it was made."""

import torch

x = torch.randn(2, 2, requires_grad=True) * 10


def clip(grad):
    return torch.clamp(grad, -1, 1)


handle = x.register_hook(clip)  # <- TH307
y = x.pow(2).sum()
y.backward()
print("clipped gradient:", x.grad)
result = x.grad
