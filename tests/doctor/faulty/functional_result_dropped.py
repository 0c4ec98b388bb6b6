# TH301
"""Normalise the rows of the gradient by a function of torch; the result has no name."""

from functools import partial

import torch
from torch import nn

model = nn.Linear(3, 2)


def normalise(grad, dim):
    nn.functional.normalize(grad, dim=dim)


model.weight.register_hook(partial(normalise, dim=1))  # <- TH301
model(torch.randn(6, 3)).pow(2).sum().backward()
result = model.weight.grad.norm(dim=1)
