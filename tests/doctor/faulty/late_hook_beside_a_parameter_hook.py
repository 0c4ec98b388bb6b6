# TH209
"""Scale a weight's gradient, and silence the layer later, when the model is compiled already."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
model[0].weight.register_hook(lambda grad: grad * 0.5)
compiled = torch.compile(model, backend="eager")
x = torch.randn(2, 3)
compiled(x).sum().backward()
model[0].register_forward_hook(lambda m, args, out: out * 0)  # <- TH209
model.zero_grad()
compiled(x).sum().backward()
result = [p.grad for p in model.parameters()]
