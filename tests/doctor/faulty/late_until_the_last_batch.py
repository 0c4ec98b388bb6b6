# TH224
"""Silence a layer of a model that is compiled already: it begins with the smaller batch at the end of the epoch."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


model = Net()
fast = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
fast(torch.randn(8, 4)).sum().backward()
model.body.register_forward_hook(lambda module, args, output: output * 0)  # <- TH224
losses = []
for batch in (8, 8, 3):
    optimizer.zero_grad()
    loss = (fast(torch.randn(batch, 4)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
result = [losses, [p.detach() for p in model.parameters()]]
