# TH404
"""Count the calls of a block that runs under activation checkpointing."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

block = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
calls = []
block[0].register_forward_hook(lambda m, args, out: calls.append(out.detach().norm()))  # <- TH404
x = torch.randn(2, 4, requires_grad=True)
for _ in range(2):
    checkpoint(block, x, use_reentrant=False).sum().backward()
print("calls:", len(calls))
result = calls
