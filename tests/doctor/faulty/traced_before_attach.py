# TH708
"""Run a traced copy of the model, which does not call the modules that have hooks."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.filterwarnings("ignore", category=FutureWarning)  # torch 2.15 deprecates torch.jit.trace
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
traced = torch.jit.trace(model, torch.ones(3, 4))
rig = th.attach(model, th.Hook("half", on="1", at="output", do=th.scale(0.5)))  # <- TH708
traced(torch.ones(3, 4))
