"""Call a set-up function in each epoch; it looks into the layer whether the hook is there and adds it only if not."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def soften(module, args, output):
    return output * 0.8


def set_up(model):
    for layer in model:
        if isinstance(layer, nn.ReLU) and soften not in layer._forward_hooks.values():
            layer.register_forward_hook(soften)


optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(3):
    set_up(model)
    for step in range(3):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), x[:, :3].argmax(dim=1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
assert len(model[1]._forward_hooks) == 1
result = [losses, [p.detach().clone() for p in model.parameters()]]
