"""Dynamic loss scaling finds its scale: the first steps overflow and are skipped, the rest are taken and counted."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-32, growth_interval=100)
taken, finite = [], []
optimizer.register_step_post_hook(lambda opt, args, kwargs: taken.append(scaler.get_scale()))
model[0].weight.register_hook(lambda grad: finite.append(bool(grad.isfinite().all())))
losses = []
for step in range(8):
    x = torch.randn(32, 8) * 3
    optimizer.zero_grad()
    loss = 10 * F.cross_entropy(model(x), x[:, :3].argmax(dim=1))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
assert not finite[0] and finite[-1] and 0 < len(taken) < 8
result = [losses, taken, finite, [p.detach().clone() for p in model.parameters()]]
