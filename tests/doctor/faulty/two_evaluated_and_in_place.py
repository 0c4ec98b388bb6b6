# TH501 TH603
"""Find the layer by a path from a settings text, and zero a row of its gradient in place."""

import json

import torch
from torch import nn

settings = json.loads('{"target": "model[0].weight", "row": 1}')
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def freeze_row(grad):
    grad[settings["row"]] = 0.0


eval(settings["target"]).register_hook(freeze_row)  # <- TH501 TH603
model(torch.randn(5, 3)).pow(2).sum().backward()
result = model[0].weight.grad
