# TH509
"""Steer a block for one forward only; its checkpoint recomputes without the steering."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
x = torch.randn(3, 4, requires_grad=True)
handle = block[0].register_forward_hook(lambda m, args, out: out + 3.0)  # <- TH509
loss = checkpoint(block, x, use_reentrant=False).sum()
handle.remove()
loss.backward()
result = [loss.detach(), x.grad]
