"""Warm up and then cosine decay, two parameter groups, with a hook that logs rate times gradient norm."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

model = nn.Sequential(nn.Linear(10, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
decay = [p for p in model.parameters() if p.dim() > 1]
no_decay = [p for p in model.parameters() if p.dim() <= 1]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=0.01)
scheduler = SequentialLR(
    optimizer, [LinearLR(optimizer, 0.1, total_iters=3), CosineAnnealingLR(optimizer, T_max=7)], milestones=[3]
)
log = []
for p in decay:
    p.register_hook(lambda grad: log.append(scheduler.get_last_lr()[0] * grad.norm().item()))

losses = []
for step in range(10):
    x, y = torch.randn(32, 10), torch.randint(4, (32,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
result = [losses, log, [p.detach().clone() for p in model.parameters()]]
