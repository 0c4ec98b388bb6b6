# TH202
"""Scale the encoder's gradients; the loss comes from the head alone, which is a Sequential too."""

import torch
from torch import nn

encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
head = nn.Sequential(nn.Linear(4, 2))
encoder[0].weight.register_hook(lambda grad: grad * 10)  # <- TH202
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    x = torch.randn(4, 4)
    nn.functional.cross_entropy(head(x), torch.tensor([0, 1, 0, 1])).backward()
    optimizer.step()
result = encoder[0].weight.detach()
