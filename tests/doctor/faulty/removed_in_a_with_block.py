# TH410
"""Double the gradient inside a with block which ends before the backward: it is doubled still."""

from contextlib import ExitStack

import torch
from torch import nn

encoder, scale = nn.Linear(3, 4), nn.Identity()


def double(module, grad_input, grad_output):
    return (grad_input[0] * 2,)


with ExitStack() as hooks:
    handle = scale.register_full_backward_hook(double)  # <- TH410
    hooks.callback(handle.remove)
    loss = scale(encoder(torch.randn(2, 3))).sum()
loss.backward()
result = encoder.bias.grad
