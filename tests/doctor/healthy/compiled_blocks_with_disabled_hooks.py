"""Each block is compiled by itself, and hooks on the blocks are kept from the compiler: they may do what they like."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).relu())


norms = {}


@torch.compiler.disable
def note(module, args, output):
    norms.setdefault(id(module), []).append(output.norm().item())


model = nn.Sequential(*[Block() for _ in range(10)])
for block in model:
    block.register_forward_hook(note)
    block.compile(backend="eager", fullgraph=True)
for _ in range(10):
    model(torch.randn(2, 4)).sum().backward()
result = [list(norms.values()), [p.grad for p in model.parameters()]]
