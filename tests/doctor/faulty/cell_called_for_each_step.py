# TH402
"""Halve the gradient that leaves the recurrent part; the module with the hook runs at each time step."""

import torch
from torch import nn

cell, brake = nn.RNNCell(3, 5), nn.Identity()


def halve(module, grad_input, grad_output):
    return (grad_input[0] * 0.5,)


brake.register_full_backward_hook(halve)  # <- TH402
sequence = torch.randn(4, 2, 3, requires_grad=True)
h = torch.zeros(2, 5)
for frame in sequence:
    h = brake(cell(frame, h))
h.sum().backward()
result = sequence.grad
