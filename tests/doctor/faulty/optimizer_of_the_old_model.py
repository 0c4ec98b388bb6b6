# TH104
"""The model was built anew after the optimizer was made, so that the optimizer holds other parameters."""

import torch
from torch import nn

import tenterhook as th


def build():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = build()
norms = th.Hook("norms", on="**.weight", at="grad_final", do=th.stats())
rig = th.attach(model, norms, optimizer=optimizer)  # <- TH104
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
