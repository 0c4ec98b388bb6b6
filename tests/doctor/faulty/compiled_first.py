# TH209
import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
compiled = torch.compile(model, backend="eager")
compiled(torch.randn(2, 3)).sum().backward()
model[0].register_full_backward_hook(lambda m, gi, go: None)  # <- TH209
compiled(torch.randn(2, 3)).sum().backward()
result = model[0].weight.grad
