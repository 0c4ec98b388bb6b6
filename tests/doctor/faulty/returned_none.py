# TH301
"""Clamp the gradient of a tensor, and forget to return it."""

import torch


def clamp(grad):
    grad = grad.clamp(-1, 1)


x = torch.tensor(10.0, requires_grad=True)
y = x**2
y.register_hook(clamp)  # <- TH301
(3 * y).backward()
result = x.grad
