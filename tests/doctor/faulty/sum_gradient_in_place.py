# TH501
"""Edit in place a gradient that sum() has expanded: PyTorch stops it."""

import torch

x = torch.randn(3, requires_grad=True)
y = x * 2
y.register_hook(lambda grad: grad.add_(1.0))  # <- TH501
y.sum().backward()
result = x.grad
