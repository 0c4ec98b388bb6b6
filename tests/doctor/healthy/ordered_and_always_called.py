"""Hooks in order (prepend), called even if the forward fails (always_call), and one made with functools.partial."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


class Checked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        if not x.isfinite().all():
            raise ValueError("bad batch")
        return self.fc(x)


order, ends = [], []


def add(amount, tag, module, args, output):
    order.append(tag)
    return output + amount


model = Checked()
model.fc.register_forward_hook(partial(add, 1.0, "second"))
model.fc.register_forward_hook(partial(add, torch.arange(3.0), "first"), prepend=True)
model.register_forward_hook(lambda m, args, out: ends.append(out is not None), always_call=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(6):
    x = torch.randn(16, 6)
    if step == 2:
        x[0, 0] = torch.nan
    optimizer.zero_grad()
    try:
        loss = F.cross_entropy(model(x), torch.randint(3, (16,)))
    except ValueError:
        continue
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert ends.count(False) == 1 and order[:2] == ["first", "second"]
result = [losses, order, ends, [p.detach().clone() for p in model.parameters()]]
