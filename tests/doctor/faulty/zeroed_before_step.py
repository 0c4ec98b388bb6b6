# TH308
"""Scale the gradients of the last layer; zero_grad stands between backward and step."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model[2].weight.register_hook(lambda grad: grad * 2)  # <- TH308
before = model[2].weight.detach().clone()
for _ in range(3):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
result = (model[2].weight - before).detach()
