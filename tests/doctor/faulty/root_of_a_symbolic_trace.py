# TH238
"""Trace a model that has a hook on itself."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 2))
model.register_forward_pre_hook(lambda module, args: ((args[0] - 1) / 2,))  # <- TH238
model(torch.ones(2, 3))
traced = torch.fx.symbolic_trace(model)
result = traced(torch.ones(2, 3))
