# TH201
"""Log the norms of the gradients of one step, with hooks that come when the backward is over."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
x, y = torch.randn(16, 4), torch.randn(16, 1)
loss = nn.functional.mse_loss(model(x), y)
loss.backward()
norms = {}
for name, p in model.named_parameters():
    p.register_hook(lambda grad, name=name: norms.update({name: grad.norm()}))  # <- TH201
result = norms
