# TH406 TH408
"""A gradient penalty with a scaled weight, and a hidden tensor that is changed in place after its hook."""

import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
x = torch.tensor([0.5, -0.5], requires_grad=True)
w.register_hook(lambda grad: grad * 10)  # <- TH406
seen = []
hidden = x * 3
hidden.register_hook(lambda grad: seen.append(grad.detach().clone()))  # <- TH408
hidden.mul_(2)
(g,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
((g**2).sum() + (hidden * 4).sum()).backward()
result = [w.grad, x.grad, seen[0]]
