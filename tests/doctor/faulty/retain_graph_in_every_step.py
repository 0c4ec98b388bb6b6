# TH504
"""retain_graph=True was put in once because of an error, and stayed in the loop."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
norms = []
model[0].weight.register_hook(lambda grad: norms.append(grad.norm()))
losses = []
for batch in torch.randn(5, 8, 4):
    optimizer.zero_grad()
    loss = model(batch).pow(2).mean()
    loss.backward(retain_graph=True)  # <- TH504
    losses.append(loss)
    optimizer.step()
result = [loss.detach() for loss in losses]
