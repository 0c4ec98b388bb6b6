# TH211
"""A with block around the forward: the hook is taken off when the backward comes."""

import torch
from torch import nn

model = nn.Linear(3, 1)
seen = []
with model.weight.register_hook(lambda grad: seen.append(grad.norm())):  # <- TH211
    loss = model(torch.randn(4, 3)).square().mean()
loss.backward()
result = seen
