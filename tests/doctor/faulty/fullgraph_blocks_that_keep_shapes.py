# TH517
"""Each block is compiled as one graph; a hook on each block keeps the shapes that it gave."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).relu())


shapes = []


def keep_shape(module, args, output):
    shapes.append(output.shape)


model = nn.Sequential(Block(), Block())
for block in model:
    block.register_forward_hook(keep_shape)  # <- TH517
    block.compile(backend="eager", fullgraph=True)
for _ in range(12):
    model(torch.randn(2, 4)).sum().backward()
result = shapes
