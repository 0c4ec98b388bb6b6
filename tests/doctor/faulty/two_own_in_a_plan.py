# TH215 TH302
"""A plan of two: one hook waits for a step that does not come, one returns what it was given."""

import torch
from torch import nn

import tenterhook as th

model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@th.action("no_nans", at=["grad"], modifies=True)
def no_nans(grad, ctx):
    return grad.nan_to_num() if grad.isnan().any() else grad


plan = th.Plan(
    [
        th.Hook("clean", on="0.weight", at="grad", do=no_nans()),
        th.Hook("norms", on="**.weight", at="grad_final", do=th.stats(), when=th.When(every=10, start=100)),
    ]
)
th.attach(model, plan, optimizer=optimizer)
for batch in torch.randn(3, 5, 3):
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()
result = model[0].weight.detach()
