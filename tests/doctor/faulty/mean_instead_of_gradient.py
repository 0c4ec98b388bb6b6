# TH511
"""Replace the gradient by its mean over rows, of another shape."""

import torch
from torch import nn

model = nn.Linear(3, 4)
model.weight.register_hook(lambda grad: grad.mean(0))  # <- TH511
model(torch.randn(2, 3)).sum().backward()
result = model.weight.grad
