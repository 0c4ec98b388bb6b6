# TH233
"""Count how often each weight gets a gradient by a hook on its node; a conversion replaces the nodes."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
counts = {}


def count(name):
    def counted(*_):
        counts[name] = counts.get(name, 0) + 1

    return counted


for name, p in model.named_parameters():
    node = p.expand_as(p).grad_fn.next_functions[0][0]
    node.register_hook(count(name))  # <- TH233
del node
model.double()
outputs = []
model.register_forward_hook(lambda module, args, out: outputs.append(out.detach()))
for batch in torch.randn(3, 2, 4, dtype=torch.float64):
    model(batch).sum().backward()
result = [counts, outputs]
