"""Ten blocks of one class share their compiled code, and so do the hooks of one function inside of them."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).relu())


def double(module, args, output):
    return output * 2


model = nn.Sequential(*[Block() for _ in range(10)])
for block in model:
    block.body.register_forward_hook(double)
    block.compile(backend="eager", fullgraph=True)
for _ in range(3):
    model(torch.randn(2, 4)).sum().backward()
result = [p.grad for p in model.parameters()]
