# TH106
"""Double the gradient of a layer, as one would of a tensor."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
model[0].register_hook(lambda grad: grad * 2)  # <- TH106
model(torch.randn(2, 3)).sum().backward()
result = model[0].weight.grad
