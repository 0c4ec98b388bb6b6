# TH534
"""Count the active units of a float16 model in a float16 tensor, which cannot count beyond 2048."""

import torch
from torch import nn


class Counter:
    def __init__(self, size):
        self.active = torch.zeros(size, dtype=torch.float16)

    def __call__(self, module, args, output):
        self.active += (output > 0).sum(0).to(torch.float16)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU()).half()
counter = Counter(6)
model[1].register_forward_hook(counter)  # <- TH534
with torch.no_grad():
    for _ in range(5):
        model(torch.randn(600, 4).half())
result = counter.active
