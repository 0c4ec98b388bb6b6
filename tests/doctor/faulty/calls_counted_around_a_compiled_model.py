# TH413
"""Count how often each module is called, by a hook on every module of the process."""

from collections import Counter

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


calls = Counter()


def count(module, args, output):
    calls[type(module).__name__] += 1


handle = nn.modules.module.register_module_forward_hook(count)  # <- TH413
model = torch.compile(Net(), backend="eager")
for _ in range(2):
    model(torch.randn(2, 4)).sum().backward()
handle.remove()
result = dict(calls)
