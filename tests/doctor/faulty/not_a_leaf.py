# TH307
import torch

x = torch.randn(2, 2, requires_grad=True) * 10
x.register_hook(lambda grad: grad.clamp(-1, 1))  # <- TH307
(x**2).sum().backward()
result = x.grad
