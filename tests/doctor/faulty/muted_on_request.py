# TH510
"""Scale the gradient by a factor from a schedule, which ends too early; on_error="mute" goes on without it."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.simplefilter("ignore")
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = iter([0.1, 0.5])


@th.action("scheduled", at=["grad"], modifies=True)
def scheduled(grad, ctx):
    return grad * next(schedule)


plan = th.Plan([th.Hook("warmup", on="weight", at="grad", do=scheduled(), on_error="mute")])
th.attach(model, plan, optimizer=optimizer)
for batch in torch.randn(4, 5, 3):
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()
result = model.weight.detach()
