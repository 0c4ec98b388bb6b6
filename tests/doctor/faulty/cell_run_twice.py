# TH403
"""A notebook cell that adds hooks was run twice."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def add_hooks_cell():
    for p in model.parameters():
        p.register_hook(lambda grad: 0.5 * grad)  # <- TH403


def train_cell():
    model.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    return model[2].bias.grad.clone()


add_hooks_cell()
first = train_cell()
add_hooks_cell()
second = train_cell()
result = [first, second]
