# TH207
"""Scale what goes through each block; the model calls the blocks by .forward()."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.fc(x).relu()


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block.forward(x)
        return x


model = Tower()
for block in model.blocks:
    block.register_forward_hook(lambda m, args, out: out * 0.5)  # <- TH207
model(torch.randn(2, 4)).sum().backward()
result = model.blocks[0].fc.weight.grad
