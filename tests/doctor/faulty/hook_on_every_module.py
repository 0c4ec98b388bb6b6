# TH602
"""Print the shape of each layer's output of one model, by a global hook."""

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
criterion = nn.MSELoss()
shapes = []
handle = register_module_forward_hook(lambda m, args, out: shapes.append((type(m).__name__, out.shape)))  # <- TH602
criterion(model(torch.randn(2, 3)), torch.zeros(2, 1)).backward()
handle.remove()
result = [name for name, _ in shapes]
