# TH531
"""Sharpen the attention weights of a block and return them before its output, which the model reads first."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(4, 4)

    def forward(self, x):
        weights = self.scores(x).softmax(-1)
        return x * weights, weights


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = Attention(), nn.Linear(4, 2)

    def forward(self, x):
        hidden, _ = self.attention(x)
        return self.head(hidden)


def sharpen(module, args, output):
    hidden, weights = output
    return (weights * 2).softmax(-1), hidden


torch.manual_seed(0)
model = Model()
model.attention.register_forward_hook(sharpen)  # <- TH531
outputs = []
for batch in torch.randn(3, 2, 4):
    out = model(batch)
    out.sum().backward()
    outputs.append(out.detach())
result = outputs
