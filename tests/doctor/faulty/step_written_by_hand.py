# TH707
"""Change the parameters without an optimizer's step."""

import torch
from torch import nn

import tenterhook as th

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rig = th.attach(model, th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.1)), optimizer=optimizer)
model(torch.ones(3, 4)).sum().backward()
with torch.no_grad():
    for parameter in model.parameters():
        parameter -= 0.1 * parameter.grad  # a step without an optimizer
