# TH301
"""Shrink a gradient that is too long; the shrunk one is bound to the argument's name."""

import torch
from torch import nn

model = nn.Linear(4, 2)


class LimitNorm:
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, grad):
        norm = grad.norm()
        if norm > self.limit:
            grad = grad * (self.limit / norm)


model.weight.register_hook(LimitNorm(0.1))  # <- TH301
model(torch.randn(8, 4)).pow(2).sum().backward()
result = model.weight.grad.norm()
