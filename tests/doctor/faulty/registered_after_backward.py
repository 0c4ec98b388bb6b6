# TH201
import torch

x = torch.tensor(2.0, requires_grad=True)
y = x**2
(3 * y).backward()
y.register_hook(lambda grad: grad * 2)  # <- TH201
result = x.grad
