"""Normalize and add noise to what comes in with forward pre hooks, with and without keyword arguments."""

import torch
import torch.nn.functional as F
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, x, *, temperature=1.0):
        return self.head(self.body(x)) / temperature


def normalize(module, args):
    (x,) = args
    return ((x - x.mean(dim=0)) / (x.std(dim=0) + 1e-5),)


def warm(module, args, kwargs):
    return args, {**kwargs, "temperature": kwargs.get("temperature", 1.0) * 1.5}


def jitter(module, args):
    (hidden,) = args
    return hidden + 0.05 * torch.randn_like(hidden) if module.training else None


model = Scorer()
model.register_forward_pre_hook(normalize)
model.register_forward_pre_hook(warm, with_kwargs=True)
model.head.register_forward_pre_hook(jitter)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(6):
    x = torch.randn(32, 8) * 5 + 3
    y = (x[:, 0] > 3).long()
    model.train()
    optimizer.zero_grad()
    F.cross_entropy(model(x, temperature=2.0), y).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        losses.append(F.cross_entropy(model(x), y).item())
result = [losses, [p.detach().clone() for p in model.parameters()]]
