# TH103
"""Log the gradients of every layer of a model whose backbone was frozen for fine-tuning."""

import torch
from torch import nn

backbone = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
head = nn.Linear(8, 2)
for p in backbone.parameters():
    p.requires_grad = False
norms = {}
for name, p in [*backbone.named_parameters(), *head.named_parameters()]:
    p.register_hook(lambda grad, name=name: norms.update({name: grad.norm()}))  # <- TH103
loss = nn.functional.cross_entropy(head(backbone(torch.randn(4, 8))), torch.tensor([0, 1, 0, 1]))
loss.backward()
