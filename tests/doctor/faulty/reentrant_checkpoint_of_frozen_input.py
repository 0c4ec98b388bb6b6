# TH218
"""Save memory by a reentrant checkpoint over the first block, whose input is data that requires no grad."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=True))


model = Net()
model.block[0].weight.register_hook(lambda grad: grad * 2)  # <- TH218
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = model.block[0].weight.detach()
