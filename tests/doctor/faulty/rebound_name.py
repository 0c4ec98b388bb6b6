# TH217
import torch

x = torch.tensor([1.0, -2.0], requires_grad=True)
y = x * 2
y.register_hook(lambda grad: grad * 10)  # <- TH217
y = x * 3
y.sum().backward()
result = x.grad
