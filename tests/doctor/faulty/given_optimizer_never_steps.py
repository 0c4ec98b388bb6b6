# TH706
"""Attach with an optimizer that never steps, while another one trains the model."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.simplefilter("ignore")
model = nn.Linear(4, 2)
unused = torch.optim.SGD(model.parameters(), lr=0.1)
rig = th.attach(model, th.Hook("norms", on="**", at="grad", do=th.stats()), optimizer=unused)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(2):
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
