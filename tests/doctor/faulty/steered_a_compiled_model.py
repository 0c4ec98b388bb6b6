# TH209
"""Double the output of an inner layer of a model that was compiled and called before."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
fast = torch.compile(model, backend="aot_eager")
x = torch.randn(2, 4)
before = fast(x).detach()
model[1].register_forward_hook(lambda m, args, out: out * 2)  # <- TH209
after = fast(x)
after.sum().backward()
result = [before, after.detach()]
