# TH704
"""Rename the only layer that a hook selects."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.simplefilter("ignore")
model = nn.Sequential()
model.body, model.head = nn.Linear(4, 8), nn.Linear(8, 2)
rig = th.attach(model, th.Hook("clip", on="head.*", at="grad", do=th.clip_norm(0.1)))
model.classifier = model.head  # a new name
del model.head
for _ in range(3):
    model(torch.ones(3, 4)).sum().backward()
