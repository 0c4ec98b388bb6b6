# TH550
"""Write to the data of a weight that a pre-hook of weight_norm computes before each call."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
model = nn.Sequential(torch.nn.utils.weight_norm(nn.Conv1d(1, 1, 3)))  # <- TH550
model[0].weight.data.fill_(1 / 3)
result = model(torch.ones(1, 1, 5))
