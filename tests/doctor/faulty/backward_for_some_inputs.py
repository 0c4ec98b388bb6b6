# TH210
"""Backward for the head alone by inputs=; the hook on the body is left out."""

import torch
from torch import nn

body, head = nn.Linear(4, 8), nn.Linear(8, 1)
norms = []
body.weight.register_hook(lambda grad: norms.append(grad.norm()))  # <- TH210
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    loss = head(body(torch.randn(8, 4)).relu()).square().mean()
    loss.backward(inputs=list(head.parameters()))
    optimizer.step()
result = [body.weight.detach(), *norms]
