"""Domain-adversarial training: the gradient of the domain loss is turned round before it reaches the features."""

import math

import torch
import torch.nn.functional as F
from torch import nn

features = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
label_head = nn.Linear(16, 3)
domain_head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
modules = nn.ModuleList([features, label_head, domain_head])
optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3)
losses = []
for step in range(8):
    lambd = 2 / (1 + math.exp(-10 * step / 8)) - 1
    source, labels = torch.randn(16, 8), torch.randint(3, (16,))
    target = torch.randn(16, 8) + 0.5
    hidden = features(torch.cat([source, target]))
    label_loss = F.cross_entropy(label_head(hidden[:16]), labels)

    reversed_hidden = hidden.view_as(hidden)
    reversed_hidden.register_hook(lambda grad, lambd=lambd: -lambd * grad)
    domains = torch.cat([torch.zeros(16), torch.ones(16)]).long()
    domain_loss = F.cross_entropy(domain_head(reversed_hidden), domains)

    optimizer.zero_grad()
    (label_loss + domain_loss).backward()
    optimizer.step()
    losses.append((label_loss.item(), domain_loss.item()))
result = [losses, [p.detach().clone() for p in modules.parameters()]]
