# TH408
"""Stop the gradient of the whole sum; the residual is added in place after the hook was put on."""

import torch
from torch import nn

norm, fc = nn.LayerNorm(4), nn.Linear(4, 4)
x = torch.randn(2, 4, requires_grad=True)
skip = fc(x)
out = norm(x) * 1.0
out.register_hook(lambda grad: grad * 0)  # <- TH408
out += skip
out.pow(2).sum().backward()
result = [fc.weight.grad, norm.weight.grad]
