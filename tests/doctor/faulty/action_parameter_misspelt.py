# TH102
"""Clip with max_norm=, as clip_grad_norm_ calls it."""

import torch
from torch import nn

import tenterhook as th

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clip = th.Hook("clip", on="**", at="grad_final", do=th.Action("clip_norm", {"max_norm": 1.0}))
rig = th.attach(model, clip, optimizer=optimizer)  # <- TH102
