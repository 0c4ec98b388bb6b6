# TH530
"""Steer a block as if it returned a tuple; it returns a tensor, so every sample becomes the first one."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.layer(x).tanh()


def steer(module, args, output):
    return output[0] + direction


torch.manual_seed(0)
model = nn.Sequential(Block(), Block(), nn.Linear(4, 1))
direction = torch.full((5, 4), 0.1)
model[0].register_forward_hook(steer)  # <- TH530
outputs = []
for batch in torch.randn(2, 3, 5, 4):
    outputs.append(model(batch).detach())
result = outputs
