# TH228
"""Average the weights in a step hook, while the second phase has a new optimizer."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
average = [p.detach().clone() for p in model.parameters()]


def update(optimizer, args, kwargs):
    for mean, parameter in zip(average, model.parameters()):
        mean.lerp_(parameter.detach(), 0.1)


optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer.register_step_post_hook(update)  # <- TH228
for phase in range(2):
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
result = average
