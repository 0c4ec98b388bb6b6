# TH215
"""Keep statistics of evaluation, in a loop that trains and never evaluates."""

import torch
from torch import nn

import tenterhook as th

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
outputs = th.Hook("outputs", on="**", at="output", do=th.stats(), when=th.When(phase="eval"))
rig = th.attach(model, outputs, optimizer=optimizer)  # <- TH215
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
