"""Fine-tune the head first, then unfreeze the backbone with its own rate; each stage hooks what it trains."""

import torch
import torch.nn.functional as F
from torch import nn

backbone = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
head = nn.Linear(32, 3)
model = nn.Sequential(backbone, head)
log, losses = [], []


def hook_trainable(tag):
    return [
        param.register_hook(lambda grad, name=name: log.append((tag, name, grad.norm().item())))
        for name, param in model.named_parameters()
        if param.requires_grad
    ]


def train(optimizer, steps):
    for _ in range(steps):
        x = torch.randn(32, 8)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), x[:, :3].argmax(dim=1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


backbone.requires_grad_(False)
handles = hook_trainable("head")
optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
train(optimizer, 3)

for handle in handles:
    handle.remove()
backbone.requires_grad_(True)
hook_trainable("all")
optimizer.add_param_group({"params": backbone.parameters(), "lr": 1e-3})
train(optimizer, 4)
result = [losses, log, [p.detach().clone() for p in model.parameters()]]
