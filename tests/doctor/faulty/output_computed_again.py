# TH217
"""Hook the output, then change the input and compute it anew under the same name: a notebook cell run twice."""

import torch
from torch import nn

model = nn.Linear(3, 2)
out = model(torch.ones(2, 3))
out.register_hook(lambda grad: grad * 100)  # <- TH217
out = model(torch.zeros(2, 3))
out.sum().backward()
result = [model.weight.grad, model.bias.grad]
