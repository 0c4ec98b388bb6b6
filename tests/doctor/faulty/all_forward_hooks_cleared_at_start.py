# TH703
"""Clear the forward hooks of all modules, those of the rig included."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.simplefilter("ignore")
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
rig = th.attach(model, th.Hook("sizes", on="type:Linear", at="output", do=th.stats()))
for module in model.modules():
    module._forward_hooks.clear()  # a cleanup that removes the hooks of others
for _ in range(2):
    model(torch.ones(3, 4)).sum().backward()
