# TH702
"""Assign gradients by hand, and clip them where autograd computes gradients."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.simplefilter("ignore")
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rig = th.attach(model, th.Hook("clip", on="**", at="grad", do=th.clip_norm(0.1)), optimizer=optimizer)
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)  # a gradient that autograd did not compute
optimizer.step()
