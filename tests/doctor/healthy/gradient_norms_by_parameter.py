"""Log the norm of each parameter's gradient in each step, and find the layer where it vanishes."""

from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn

layers = []
for _ in range(6):
    layers += [nn.Linear(16, 16), nn.Sigmoid()]
model = nn.Sequential(*layers, nn.Linear(16, 2))

norms = defaultdict(list)


def make_hook(name):
    def record(grad):
        norms[name].append(grad.norm().item())

    return record


for name, p in model.named_parameters():
    if p.requires_grad:
        p.register_hook(make_hook(name))

optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
losses = []
for step in range(10):
    x, y = torch.randn(32, 16), torch.randint(2, (32,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
vanished = [name for name, values in norms.items() if max(values) < 1e-5]
result = [losses, dict(norms), vanished, [p.detach().clone() for p in model.parameters()]]
