# TH406
"""Scale the gradient by ten; a gradient penalty takes the gradient once before."""

import torch

w = torch.tensor(2.0, requires_grad=True)
w.register_hook(lambda grad: grad * 10)  # <- TH406
loss = w**3
(g,) = torch.autograd.grad(loss, w, create_graph=True)
penalty = (g - 1) ** 2
penalty.backward()
result = w.grad
