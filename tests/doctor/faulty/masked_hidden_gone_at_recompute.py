# TH509
"""Scale the hidden state inside a with block; the backward runs after it."""

import contextlib

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

block = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))


@contextlib.contextmanager
def hooked(module, fn):
    handle = module.register_forward_hook(fn)  # <- TH509
    try:
        yield
    finally:
        handle.remove()


scale = torch.full((4,), 2.0, requires_grad=True)
x = torch.randn(3, 4)
with hooked(block[1], lambda m, args, out: torch.sigmoid(out * scale) * out):
    loss = checkpoint(block, x, use_reentrant=False).sum()
loss.backward()
result = scale.grad
