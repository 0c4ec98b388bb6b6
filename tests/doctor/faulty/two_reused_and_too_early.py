# TH402 TH407
"""Log the shared activation's gradient and, in the first layer's hook, the weight's."""

import torch
from torch import nn

embed, mix, act = nn.Linear(3, 4), nn.Linear(4, 4), nn.Tanh()
grads, weights = [], []


def keep(module, grad_input, grad_output):
    grads.append(grad_output[0].clone())


def log_weight(module, grad_input, grad_output):
    weights.append(torch.tensor(module.weight.grad is not None))


act.register_full_backward_hook(keep)  # <- TH402
embed.register_full_backward_hook(log_weight)  # <- TH407
act(mix(act(embed(torch.randn(2, 3))))).sum().backward()
result = [grads[0], weights]
