# TH422
"""Limit the gradient of a block that several reentrant checkpoints share."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
block = nn.Linear(2, 2)
block.weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))  # <- TH422
x = torch.ones(1, 2, requires_grad=True)
for _ in range(3):
    x = checkpoint(block, x, use_reentrant=True)
x.sum().backward()
result = block.weight.grad
