# TH519
"""Log the norms of the gradients; the function fails, so nothing is logged."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.simplefilter("ignore")
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
logged = []


def log(values, step):
    logged.append(values["norms/2.weight"])  # the name of the statistic is missing


rig = th.attach(model, th.Hook("norms", on="**", at="grad_final", do=th.stats()), optimizer=optimizer, sinks=log)
for batch in torch.randn(3, 5, 3):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
rig.flush()
result = [model[0].weight.detach(), torch.tensor(len(logged))]
