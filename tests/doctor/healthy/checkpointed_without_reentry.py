"""Activation checkpointing (use_reentrant=False) of each block, with forward hooks that change and that watch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1)) for _ in range(3)]
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.head(x)


model = Net()
scale = 0.5
peaks = {}
for i, block in enumerate(model.blocks):
    block[0].register_forward_hook(lambda module, args, out: out * scale)
    block.register_forward_hook(lambda module, args, out, i=i: peaks.update({i: out.detach().abs().max()}))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(5):
    x, y = torch.randn(16, 16), torch.randint(4, (16,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, peaks, [p.detach().clone() for p in model.parameters()]]
