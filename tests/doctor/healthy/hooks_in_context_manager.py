"""Hooks only while they are needed: one's own context manager, and a handle used in `with`."""

from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2))


@contextmanager
def recording(model, kind):
    outputs, handles = {}, []
    for name, module in model.named_modules():
        if isinstance(module, kind):
            handles.append(module.register_forward_hook(lambda m, a, out, n=name: outputs.update({n: out.detach()})))
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
losses, kept, grads = [], [], []
for step in range(6):
    x, y = torch.randn(16, 6), torch.randint(2, (16,))
    with recording(model, nn.Tanh) as outputs:
        loss = F.cross_entropy(model(x), y)
    kept.append(torch.stack([out.abs().mean() for out in outputs.values()]))
    optimizer.zero_grad()
    with model[4].weight.register_hook(lambda grad: grads.append(grad.norm())):
        loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, kept, grads, [p.detach().clone() for p in model.parameters()]]
