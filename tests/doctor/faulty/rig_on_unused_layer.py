# TH213
"""Keep the statistics of a layer that the forward does not use any more."""

import torch
from torch import nn

import tenterhook as th


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.old_norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.stem(x).relu())


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rig = th.attach(model, th.Hook("norm", on="old_norm", at="output", do=th.stats()), optimizer=optimizer)  # <- TH213
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = model.head.weight.detach()
