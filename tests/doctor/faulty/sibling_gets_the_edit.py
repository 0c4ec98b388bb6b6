# TH501
"""Zero the gradient of one summand; the other summand shares its memory and gets zero too."""

import torch

a = torch.ones(3, requires_grad=True)
b = torch.ones(3, requires_grad=True)
left, right = a * 2, b * 2


def stop(grad):
    grad.zero_()


right.register_hook(stop)  # <- TH501
total = left + right
(total * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
result = [a.grad, b.grad]
