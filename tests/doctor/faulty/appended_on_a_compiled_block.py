# TH518
"""A block is compiled, and a hook on it collects what it gives."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).relu())


outputs = []
model = nn.Sequential(Block(), nn.Linear(4, 1))
model[0].compile(backend="eager")
model[0].register_forward_hook(lambda module, args, output: outputs.append(output.detach()))  # <- TH518
for _ in range(12):
    model(torch.randn(2, 4)).sum().backward()
result = outputs
