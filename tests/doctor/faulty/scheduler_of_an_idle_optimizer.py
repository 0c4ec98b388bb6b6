# TH423
"""Schedule the learning rate of an optimizer, while hooks step others."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)  # <- TH423
own = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}


def update(parameter):
    own[parameter].step()
    parameter.grad = None


for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    scheduler.step()
result = model.weight
