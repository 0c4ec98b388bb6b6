# TH511
"""Clamp the accumulated gradient and return it, as in other hooks."""

import torch
from torch import nn

model = nn.Linear(3, 4)
model.weight.register_post_accumulate_grad_hook(lambda p: p.grad.clamp(-1, 1))  # <- TH511
(model(torch.randn(2, 3)) * 5).sum().backward()
result = model.weight.grad
