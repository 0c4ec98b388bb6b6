# TH403
"""Double the gradient of a weight; the line stands there twice."""

import torch
from torch import nn

model = nn.Linear(3, 1)


def double(grad):
    return grad * 2


model.weight.register_hook(double)  # <- TH403
model.bias.register_hook(lambda grad: grad.sign())
model.weight.register_hook(double)  # <- TH403
(model(torch.ones(1, 3)) * 5).sum().backward()
result = model.weight.grad
