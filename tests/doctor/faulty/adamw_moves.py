# TH304
"""Train only the head: the body gets zero gradients by a hook, and AdamW shrinks it all the same."""

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
start = model.body.weight.detach().clone()
for p in model.body.parameters():
    p.register_hook(lambda grad: grad * 0.0)  # <- TH304
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
result = (model.body.weight - start).detach()
