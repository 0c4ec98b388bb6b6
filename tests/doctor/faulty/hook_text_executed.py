# TH603
"""The hook's code is stored as text beside the weights, and run when they are loaded."""

import json

import torch
from torch import nn

saved = json.dumps({"target": "weight", "code": "def scale(grad):\n    return grad * 0.5\n"})

model = nn.Linear(3, 1)
spec = json.loads(saved)
scope = {}
exec(spec["code"], scope)  # <- TH603
getattr(model, spec["target"]).register_hook(scope["scale"])
model(torch.ones(2, 3)).sum().backward()
result = model.weight.grad
