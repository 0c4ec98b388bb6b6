# TH301 TH510
"""An observer of tenterhook's fails and is muted; a raw hook beside it returns nothing."""

import warnings

import torch
from torch import nn

import tenterhook as th

warnings.simplefilter("ignore")
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@th.action("row_norm", at=["output"], modifies=False)
def row_norm(activation, ctx):
    return {"row": activation[99].norm()}


def clip(grad):
    grad = grad.clamp(-0.01, 0.01)


th.attach(model, th.Plan([th.Hook("rows", on="1", at="output", do=row_norm())]))
model[2].weight.register_hook(clip)  # <- TH301
for batch in torch.randn(3, 5, 3):
    optimizer.zero_grad()
    (model(batch) - 1).pow(2).mean().backward()
    optimizer.step()
result = model[2].weight.detach()
