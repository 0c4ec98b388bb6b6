# TH501
"""Remove large values from the gradient through `.data`."""

import torch
from torch import nn

layer = nn.Linear(5, 3)
x = torch.randn(4, 5, requires_grad=True)


def cut(grad):
    grad.data[grad.data.abs() > 0.5] = 0.0


hidden = layer(x)
hidden.register_hook(cut)  # <- TH501
hidden.pow(2).sum().backward()
result = [x.grad, layer.weight.grad]
