# TH203 TH217
"""Hook the output of a first batch, go on with a second under the same name; and hook a bias that is frozen later."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
model[2].bias.register_hook(torch.zeros_like)  # <- TH203
out = model(torch.randn(2, 3))
out.register_hook(lambda grad: grad * 2)  # <- TH217
model[2].bias.requires_grad_(False)
out = model(torch.randn(2, 3))
out.sum().backward()
result = [model[0].weight.grad, model[2].weight.grad]
