# TH418
"""Print the norm of the accumulated gradient after each backward pass."""

import torch
from torch import nn

model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
norms = []


def note(grad):
    norms.append(0.0 if model.weight.grad is None else model.weight.grad.norm().item())


model.weight.register_hook(note)  # <- TH418
for _ in range(2):
    model(torch.ones(1, 2)).sum().backward()
optimizer.step()
result = torch.tensor(norms)
