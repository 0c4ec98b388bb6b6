# TH501
"""Damp what flows back through a block by editing grad_input itself."""

import torch
from torch import nn

stem, block = nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 4))


def damp(module, grad_input, grad_output):
    for g in grad_input:
        if g is not None:
            g.mul_(0.1)


block.register_full_backward_hook(damp)  # <- TH501
h = stem(torch.randn(2, 3))
(h + block(h)).pow(2).sum().backward()
result = stem.weight.grad
