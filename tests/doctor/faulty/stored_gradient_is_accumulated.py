# TH506
"""Keep each micro-batch's gradient sum by name; detach() does not copy."""

import torch
from torch import nn

model = nn.Linear(3, 1)
seen = []


def remember(parameter):
    seen.append(parameter.grad.detach())


model.weight.register_post_accumulate_grad_hook(remember)  # <- TH506
for batch in torch.ones(3, 4, 3):
    model(batch).sum().backward()
result = [g.clone() for g in seen]
