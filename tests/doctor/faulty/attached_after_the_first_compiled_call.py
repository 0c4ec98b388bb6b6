# TH112
"""Watch a layer of a model that has run compiled: it works, and the model is compiled once more."""

import torch
from torch import nn

import tenterhook as th

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
compiled(torch.randn(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hook = th.Hook("norms", on="0", at="output", do=th.stats())
rig = th.attach(compiled, hook, optimizer=optimizer)  # <- TH112
for _ in range(3):
    optimizer.zero_grad()
    compiled(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
