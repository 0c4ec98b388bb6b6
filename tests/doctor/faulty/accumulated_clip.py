# TH401
import torch

w = torch.ones(3, requires_grad=True)
w.register_hook(lambda grad: grad.clamp(-1, 1))  # <- TH401
for _ in range(3):
    (w * 5).sum().backward()
result = w.grad
