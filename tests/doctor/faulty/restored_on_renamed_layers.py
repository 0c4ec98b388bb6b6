# TH110
"""Resume with a model in which the encoder has been renamed since the save."""

import torch
from torch import nn

import tenterhook as th

model = nn.ModuleDict({"encoder": nn.Linear(4, 4), "head": nn.Linear(4, 1)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clip = th.Hook("clip", on="encoder.weight", at="grad_final", do=th.clip_norm(1.0))
rig = th.attach(model, clip, optimizer=optimizer)
model["head"](model["encoder"](torch.randn(2, 4))).sum().backward()
optimizer.step()
saved = rig.state_dict()

renamed = nn.ModuleDict({"backbone": nn.Linear(4, 4), "head": nn.Linear(4, 1)})
optimizer = torch.optim.SGD(renamed.parameters(), lr=0.1)
back = th.restore(renamed, saved, optimizer=optimizer)  # <- TH110
