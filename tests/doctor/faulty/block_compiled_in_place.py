# TH209
"""Compile a block in place with module.compile(), and ask for a layer's gradients inside it later."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


model = nn.Sequential(Block(), nn.Linear(4, 1))
model[0].compile(backend="eager")
model(torch.randn(2, 4)).sum().backward()
grads = []
model[0].up.register_full_backward_hook(lambda m, gi, go: grads.append(go[0].norm()))  # <- TH209
for _ in range(2):
    model(torch.randn(2, 4)).sum().backward()
result = [model[0].up.weight.grad, *grads]
