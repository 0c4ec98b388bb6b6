"""Elastic weight consolidation: hooks sum the squared gradients of the first task, then come off for the second."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []


def train(task, penalty=lambda: 0.0):
    for _ in range(5):
        x = torch.randn(32, 8)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), (x[:, task] > 0).long()) + penalty()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


train(0)
fisher = {name: torch.zeros_like(p) for name, p in model.named_parameters()}


def accumulate(name):
    def hook(grad):
        fisher[name] += grad.detach() ** 2

    return hook


handles = [p.register_hook(accumulate(name)) for name, p in model.named_parameters()]
for _ in range(8):
    x = torch.randn(1, 8)
    model.zero_grad()
    logits = model(x)
    F.cross_entropy(logits, logits.argmax(dim=1)).backward()
for handle in handles:
    handle.remove()
anchor = {name: p.detach().clone() for name, p in model.named_parameters()}
train(1, lambda: 10 * sum((fisher[n] * (p - anchor[n]) ** 2).sum() for n, p in model.named_parameters()))
result = [losses, list(fisher.values()), [p.detach().clone() for p in model.parameters()]]
