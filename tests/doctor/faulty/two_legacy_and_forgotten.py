# TH301 TH601
"""Look at a layer by the old hook, and clip another's weight in a hook that returns nothing."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
seen = []


def clip(grad):
    limited = grad.clamp(max=0.1)


model[2].register_backward_hook(lambda m, grad_input, grad_output: seen.append(grad_input[0].clone()))  # <- TH601
model[0].weight.register_hook(clip)  # <- TH301
model(torch.randn(3, 4)).pow(2).sum().backward()
result = [seen, model[0].weight.grad]
