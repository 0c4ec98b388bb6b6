# TH305
"""Fine-tune the backbone gently: its gradients are divided by 100, under Adam."""

import torch
from torch import nn

backbone = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
head = nn.Linear(8, 2)
for name, p in backbone.named_parameters():
    p.register_hook(lambda grad: grad / 100)  # <- TH305
params = list(backbone.parameters()) + list(head.parameters())
optimizer = torch.optim.Adam(params, lr=3e-3)
inputs, labels = torch.randn(12, 4), torch.randint(0, 2, (12,))
for _ in range(4):
    loss = nn.functional.cross_entropy(head(backbone(inputs)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = backbone[0].weight.detach()
