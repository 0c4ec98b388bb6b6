# TH202
import torch

x = torch.arange(4.0, requires_grad=True)
view = x[:2]
view.register_hook(lambda grad: grad * 0)  # <- TH202
x.sum().backward()
result = x.grad
