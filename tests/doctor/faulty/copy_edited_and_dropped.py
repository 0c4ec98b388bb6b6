# TH301
"""Work on a copy, as one should, and leave it there."""

import torch
from torch import nn

embedding = nn.Embedding(5, 3)


def skip_padding(grad):
    new_grad = grad.clone()
    new_grad[0] = 0.0


embedding.weight.register_hook(skip_padding)  # <- TH301
embedding(torch.tensor([0, 1, 0, 4])).pow(2).sum().backward()
result = embedding.weight.grad
