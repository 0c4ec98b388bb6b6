# TH553
"""Round saved activations, but not weights. A linear layer saves a view of its weight, which is rounded, too."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
known = {id(parameter) for parameter in model.parameters()}


def pack(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if id(tensor) in known else tensor.round(decimals=1)


with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):  # <- TH553
    loss = model(torch.ones(2, 4)).sum()
loss.backward()
result = float(model[0].weight.grad.sum())
