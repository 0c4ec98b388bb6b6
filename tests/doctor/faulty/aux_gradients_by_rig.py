# TH202
"""Clip each gradient of an auxiliary head that the loss forgets."""

import torch
from torch import nn

import tenterhook as th

model = nn.ModuleDict({"main": nn.Linear(4, 2), "aux": nn.Linear(4, 2)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clip = th.Hook("clip", on="aux.weight", at="grad", do=th.clip_value(0.01))
rig = th.attach(model, clip, optimizer=optimizer)  # <- TH202
for _ in range(3):
    x = torch.randn(8, 4)
    main, aux = model["main"](x), model["aux"](x)
    optimizer.zero_grad()
    main.square().mean().backward()
    optimizer.step()
result = model["aux"].weight.detach()
