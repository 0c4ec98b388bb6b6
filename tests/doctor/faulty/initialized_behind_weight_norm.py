# TH550
"""Initialize a weight that a pre-hook of weight_norm computes before each call."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
model = torch.nn.utils.weight_norm(nn.Linear(3, 3))  # <- TH550
with torch.no_grad():
    model.weight.copy_(torch.eye(3))
result = model(torch.ones(2, 3))
