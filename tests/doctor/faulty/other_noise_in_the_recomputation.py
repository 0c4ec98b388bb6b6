# TH404
"""Add noise from a generator of the program inside a checkpoint."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
block = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
noise = torch.Generator().manual_seed(1)


def jitter(module, args, output):
    return output * (1 + torch.randn(output.shape, generator=noise))


block[1].register_forward_hook(jitter)  # <- TH404
checkpoint(block, torch.ones(1, 2), use_reentrant=False).sum().backward()
result = block[0].weight.grad
