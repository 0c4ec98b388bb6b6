# TH510
"""Log a statistic of each activation; the function fails on the second batch and is muted."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.simplefilter("ignore")
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []


@th.action("correlate", at=["output"], modifies=False)
def correlate(activation, ctx):
    seen.append(activation if not seen else activation @ seen[-1])


th.attach(model, th.Plan([th.Hook("similar", on="1", at="output", do=correlate())]))
for batch in torch.randn(3, 5, 3):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
result = [model[0].weight.detach(), torch.tensor(len(seen))]
