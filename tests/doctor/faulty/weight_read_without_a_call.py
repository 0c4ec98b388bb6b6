# TH207
"""Read the weight of a layer with weight_norm without calling the layer. It is not computed from what was loaded."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)
trained, layer = (torch.nn.utils.weight_norm(nn.Linear(2, 2, bias=False)) for _ in range(2))  # <- TH207
trained(torch.ones(1, 2))
layer.load_state_dict(trained.state_dict())
result = torch.equal(torch.ones(1, 2) @ layer.weight.t(), trained(torch.ones(1, 2)))
