# TH506
"""Keep the gradients of each step; zero_grad(set_to_none=False) clears what was kept."""

import torch
from torch import nn

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []


def keep(parameter):
    history.append(parameter.grad)


model.weight.register_post_accumulate_grad_hook(keep)  # <- TH506
for batch in torch.randn(3, 4, 3):
    optimizer.zero_grad(set_to_none=False)
    model(batch).pow(2).mean().backward()
    optimizer.step()
optimizer.zero_grad(set_to_none=False)
result = [g.clone() for g in history]
