# TH701
"""Replace the optimizer after attaching, so that the new one steps without the hook."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.simplefilter("ignore")
model = nn.Linear(4, 2)
first = torch.optim.SGD(model.parameters(), lr=0.1)
rig = th.attach(model, th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.1)), optimizer=first)
second = torch.optim.Adam(model.parameters(), lr=0.01)
model(torch.ones(3, 4)).sum().backward()
second.step()
