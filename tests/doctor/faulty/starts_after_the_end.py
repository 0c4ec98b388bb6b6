# TH215
"""Clip from step 1000 on, in a run of twenty steps."""

import torch
from torch import nn

import tenterhook as th

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clip = th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.1, over="hook"), when=th.When(start=1000))
rig = th.attach(model, clip, optimizer=optimizer)  # <- TH215
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
