# TH501
"""Do not train the padding row of an embedding: its row of the gradient is set to zero."""

import torch
from torch import nn

embedding = nn.Embedding(6, 3)


def no_padding(grad):
    grad[0] = 0
    return grad


embedding.weight.register_hook(no_padding)  # <- TH501
embedding(torch.tensor([0, 1, 2, 0])).pow(2).sum().backward()
result = embedding.weight.grad
