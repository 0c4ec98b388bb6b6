# TH507
"""An action of one's own asks for a key that is not there."""

import torch
from torch import nn

import tenterhook as th

model = nn.Linear(3, 1)
limits = {"bias": 1.0}


@th.action("limit_by_name", at=["grad"], modifies=True)
def limit_by_name(grad, ctx):
    return grad.clamp(-limits[ctx.target], limits[ctx.target])


th.hook(model, limit_by_name(), on="weight", at="grad")
model(torch.randn(4, 3)).pow(2).sum().backward()  # <- TH507
result = model.weight.grad
