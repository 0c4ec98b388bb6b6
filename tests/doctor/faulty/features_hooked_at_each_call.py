# TH409
"""A function that returns features registers a hook each time it is called."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))


def features_of(x):
    found = []
    model[1].register_forward_hook(lambda m, args, out: found.append(out.detach()))  # <- TH409
    return model(x), found


collected = []
for batch in torch.randn(5, 2, 4):
    out, found = features_of(batch)
    out.sum().backward()
    collected.append(found[0])
result = collected
