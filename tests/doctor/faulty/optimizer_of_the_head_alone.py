# TH310
"""Boost the gradients of the encoder, which was not given to the optimizer."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.encoder(x).relu())


model = Net()
model.encoder.weight.register_hook(lambda grad: grad * 4)  # <- TH310
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
start = model.encoder.weight.detach().clone()
for _ in range(3):
    model.zero_grad()
    model(torch.randn(6, 4)).pow(2).sum().backward()
    optimizer.step()
result = (model.encoder.weight - start).detach()
