# TH208
"""A feature pyramid returns a list of maps; its full backward hook never fires."""

import torch
from torch import nn


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(2, 2, 3, padding=1) for _ in range(3))

    def forward(self, x):
        maps = []
        for conv in self.convs:
            x = conv(x).relu()
            maps.append(x)
        return maps


pyramid, head, seen = Pyramid(), nn.Linear(2, 1), []
pyramid.register_full_backward_hook(lambda m, gi, go: seen.append(go))  # <- TH208
for _ in range(2):
    maps = pyramid(torch.randn(2, 2, 8))
    sum(head(m.mean(-1)).square().mean() for m in maps).backward()
result = len(seen)
