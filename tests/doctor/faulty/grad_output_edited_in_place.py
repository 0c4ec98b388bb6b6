# TH501
"""Mask what comes into a layer's backward, in a pre-hook that writes into grad_output."""

import torch
from torch import nn

left, right = nn.Linear(3, 4), nn.Linear(3, 4)


def mask_half(module, grad_output):
    grad_output[0][:, :2] = 0


right.register_full_backward_pre_hook(mask_half)  # <- TH501
x = torch.randn(2, 3)
(left(x) + right(x)).pow(2).sum().backward()
result = [left.weight.grad, right.weight.grad]
