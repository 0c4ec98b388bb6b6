"""Stochastic depth: blocks are skipped by chance in training; hooks on them fire only when they run."""

import random

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, width, keep):
        super().__init__()
        self.body, self.keep = nn.Sequential(nn.Linear(width, width), nn.ReLU()), keep

    def forward(self, x):
        if self.training and random.random() > self.keep:
            return x
        return x + self.body(x)


model = nn.Sequential(nn.Linear(8, 16), *[Residual(16, 0.7) for _ in range(4)], nn.Linear(16, 3))
ran, norms = [0] * 4, []
for i, block in enumerate(model[1:5]):
    block.body.register_forward_hook(lambda m, args, out, i=i: ran.__setitem__(i, ran[i] + 1))
    block.body[0].weight.register_hook(lambda grad: norms.append(grad.norm()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = []
for step in range(8):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), x[:, :3].argmax(dim=1))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, ran, norms, [p.detach().clone() for p in model.parameters()]]
