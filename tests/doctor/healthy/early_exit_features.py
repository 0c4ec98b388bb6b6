"""Linear probe on a middle layer: a hook takes the features and stops the rest of the forward with an exception."""

import torch
import torch.nn.functional as F
from torch import nn


class StopForward(Exception):
    pass


backbone = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1000))
backbone.eval().requires_grad_(False)
features = {}


def take_and_stop(module, inputs, output):
    features["middle"] = output
    raise StopForward


handle = backbone[3].register_forward_hook(take_and_stop)


def extract(x):
    try:
        with torch.no_grad():
            backbone(x)
    except StopForward:
        pass
    return features["middle"]


probe = nn.Linear(32, 3)
optimizer = torch.optim.Adam(probe.parameters(), lr=1e-2)
losses = []
for step in range(6):
    x, y = torch.randn(32, 20), torch.randint(3, (32,))
    optimizer.zero_grad()
    loss = F.cross_entropy(probe(extract(x)), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
handle.remove()
result = [losses, [p.detach().clone() for net in (backbone, probe) for p in net.parameters()]]
