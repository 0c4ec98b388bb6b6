"""th.watch over a training in the usual form."""

import torch
import torch.nn.functional as F
from torch import nn

import tenterhook as th

model = nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses, norms = [], []
with th.watch(model, optimizer) as watch:
    for step in range(6):
        x, y = torch.randn(16, 2, 8), torch.randint(3, (16,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        norms.append(watch.values("grads")["0.weight"]["norm"])
result = [losses, norms, [p.detach().clone() for p in model.parameters()]]
