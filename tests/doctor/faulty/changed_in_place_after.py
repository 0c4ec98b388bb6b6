# TH408
"""Log the gradient of a hidden tensor which is then scaled in place."""

import torch

x = torch.tensor([1.0, 2.0], requires_grad=True)
hidden = x * 3
seen = []
hidden.register_hook(lambda grad: seen.append(grad.clone()))  # <- TH408
hidden.mul_(2)
hidden.retain_grad()
hidden.sum().backward()
result = [seen[0], hidden.grad]
