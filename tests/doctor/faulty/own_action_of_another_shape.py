# TH511
"""An action of one's own returns one number for the whole gradient."""

import torch
from torch import nn

import tenterhook as th

model = nn.Linear(3, 2)
th.hook(model, lambda grad: grad.mean(), on="weight", at="grad")
model(torch.randn(4, 3)).pow(2).sum().backward()  # <- TH511
result = model.weight.grad
