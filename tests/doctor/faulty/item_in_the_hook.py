# TH505
"""Log the norm of every gradient as a number, in every step."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
log = {}


def make_logger(name):
    def log_norm(grad):
        log.setdefault(name, []).append(grad.norm().item())

    return log_norm


for name, p in model.named_parameters():
    p.register_hook(make_logger(name))  # <- TH505
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(3, 8, 4):
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()
result = torch.tensor([log[name] for name in log])
