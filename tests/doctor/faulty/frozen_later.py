# TH203
import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
model[0].weight.register_hook(lambda grad: grad * 2)  # <- TH203
model[0].weight.requires_grad_(False)
model(torch.randn(2, 3)).sum().backward()
result = model[1].weight.grad
