# TH207
"""Watch the outputs of blocks that the model calls by .forward()."""

import torch
from torch import nn

import tenterhook as th


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.second.forward(self.first.forward(x).relu())


model = Tower()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
outputs = th.Hook("outputs", on="type:Linear", at="output", do=th.stats())
rig = th.attach(model, outputs, optimizer=optimizer)  # <- TH207
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
