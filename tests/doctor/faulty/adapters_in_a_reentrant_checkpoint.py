# TH218
"""Adapters in a frozen model with reentrant checkpoints: nothing in the block gets a gradient, nor does the hook."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4).requires_grad_(False)
        self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


embed, block, head = nn.Embedding(9, 4).requires_grad_(False), Adapted(), nn.Linear(4, 2)
grads = []
block.up.register_full_backward_hook(lambda m, gi, go: grads.append(go[0].norm()))  # <- TH218
for _ in range(2):
    h = checkpoint(block, embed(torch.randint(9, (3, 5))), use_reentrant=True)
    nn.functional.cross_entropy(head(h.mean(1)), torch.tensor([0, 1, 1])).backward()
result = [head.weight.grad, *grads]
