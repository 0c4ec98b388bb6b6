# TH601
"""Look at the gradient of a layer's input with the old register_backward_hook."""

import torch
from torch import nn

layer = nn.Linear(10, 5)
shapes, inputs = [], []


def look(module, grad_input, grad_output):
    shapes.append([tuple(g.shape) for g in grad_input])
    inputs.append(grad_input[0])


layer.register_backward_hook(look)  # <- TH601
x = torch.randn(1, 10, requires_grad=True)
layer(x).pow(2).sum().backward()
print("input gradient has the shape", inputs[0].shape, "but x.grad has", x.grad.shape)
result = inputs
