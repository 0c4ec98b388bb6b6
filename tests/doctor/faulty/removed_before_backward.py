# TH410
"""Switch the module's backward hook off for this step: it is removed after the forward, and acts still."""

import torch
from torch import nn

act = nn.Tanh()
x = torch.randn(3, requires_grad=True)
handle = act.register_full_backward_hook(lambda m, grad_input, grad_output: (grad_input[0] * 0,))  # <- TH410
loss = act(x * 2).sum()
handle.remove()
loss.backward()
result = x.grad
