# TH307
"""Watch the gradient of weights that were converted after requires_grad was set."""

import torch

weights = torch.randn(3, requires_grad=True).double()
seen = []
weights.register_hook(lambda grad: seen.append(grad.norm()))  # <- TH307
for _ in range(2):
    (weights * 2).sum().backward(retain_graph=True)
    if weights.grad is not None:
        weights.data -= 0.1 * weights.grad
result = [weights.detach(), seen]
