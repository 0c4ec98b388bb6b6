# TH201 TH501
"""One hook comes after the forward, another one changes its gradient in place."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
seen = []
hidden = model[1](model[0](torch.randn(2, 3)))
hidden.register_hook(lambda grad: grad.mul_(0.5))  # <- TH501
loss = model[2](hidden).square().mean()
model[0].register_full_backward_hook(lambda m, gi, go: seen.append(go[0].norm()))  # <- TH201
loss.backward()
result = [model[0].weight.grad, *seen]
