# TH501
import torch

x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
y.register_hook(lambda grad: grad.mul_(3))  # <- TH501
y.sum().backward()
result = x.grad
