"""Smaller gradients for the lower layers, by one factor for each layer, and a clip of the global norm after it."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
layers = [layer for layer in model if isinstance(layer, nn.Linear)]
for depth, layer in enumerate(reversed(layers)):
    for param in layer.parameters():
        param.register_hook(lambda grad, factor=0.5**depth: grad * factor if factor != 1 else None)

optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
losses = []
for step in range(8):
    x = torch.randn(32, 8)
    optimizer.zero_grad()
    loss = 10 * F.cross_entropy(model(x), x[:, :3].argmax(dim=1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
result = [losses, [p.detach().clone() for p in model.parameters()]]
