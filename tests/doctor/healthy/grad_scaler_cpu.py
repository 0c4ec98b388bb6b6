"""Loss scaling done right: unscale before the clip, and hooks that watch divide by the scale."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
true_norms = {}


def log_norm(name):
    return lambda grad: true_norms.setdefault(name, []).append(grad.norm().item() / scaler.get_scale())


for name, param in model.named_parameters():
    param.register_hook(log_norm(name))
optimizer.register_step_post_hook(lambda opt, args, kwargs: steps.append(scaler.get_scale()))

losses, steps = [], []
for step in range(8):
    x, y = torch.randn(32, 10), torch.randint(3, (32,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
result = [losses, true_norms, steps, [p.detach().clone() for p in model.parameters()]]
