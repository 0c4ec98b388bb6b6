"""Prune half of each layer's weights, train on with the masks, watch the gradient of the originals, make it final."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
layers = [module for module in model if isinstance(module, nn.Linear)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, densities = [], []


def train(steps):
    for _ in range(steps):
        x, y = torch.randn(32, 8), torch.randint(4, (32,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


train(3)
for layer in layers:
    prune.l1_unstructured(layer, "weight", amount=0.5)
    layer.weight_orig.register_hook(lambda grad: densities.append((grad != 0).float().mean().item()))
train(4)
for layer in layers:
    prune.remove(layer, "weight")
result = [losses, densities, [p.detach().clone() for p in model.parameters()]]
