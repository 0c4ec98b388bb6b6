"""Clip the global norm before each step and keep the weights inside a box after it, by hooks of the optimizer."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2, weight_decay=0.05)
norms = []


def clip_before(opt, args, kwargs):
    params = [p for group in opt.param_groups for p in group["params"]]
    norms.append(torch.nn.utils.clip_grad_norm_(params, 0.5))


def project_after(opt, args, kwargs):
    with torch.no_grad():
        for group in opt.param_groups:
            for p in group["params"]:
                p.clamp_(-0.4, 0.4)


optimizer.register_step_pre_hook(clip_before)
optimizer.register_step_post_hook(project_after)
losses = []
for step in range(8):
    x = torch.randn(32, 6)
    y = (x.sum(dim=1) > 0).long()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, norms, [p.detach().clone() for p in model.parameters()]]
