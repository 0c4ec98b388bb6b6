# TH230
"""Count the calls of a block; torch.fx traces the model, and only the traced model runs."""

import torch
from torch import fx, nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.layer(x).relu()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x):
        return self.second(self.first(x))


torch.manual_seed(0)
model = Model()
calls = []
model.first.register_forward_hook(lambda module, args, out: calls.append(1))  # <- TH230
traced = fx.symbolic_trace(model)
for batch in torch.randn(3, 2, 4):
    traced(batch).sum().backward()
result = len(calls)
