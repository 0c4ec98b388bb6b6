# TH221
"""A forward hook that hooks the gradient of the output, in a model that is compiled as one graph."""

import torch
from torch import nn

grads = []


def watch(module, args, output):
    output.register_hook(lambda grad: grads.append(grad.norm().item()))


model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
model[1].register_forward_hook(watch)  # <- TH221
compiled = torch.compile(model, backend="eager", fullgraph=True)
compiled(torch.randn(2, 4)).sum().backward()
result = grads
