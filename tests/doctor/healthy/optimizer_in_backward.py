"""Save memory: each parameter has its own optimizer, which steps inside the backward and drops the gradient."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
optimizers = {p: torch.optim.AdamW([p], lr=1e-3, foreach=False) for p in model.parameters()}


def optimizer_hook(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(optimizer_hook)

losses = []
for step in range(6):
    inputs, targets = torch.randn(32, 16), torch.randint(5, (32,))
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    losses.append(loss.item())
result = [losses, [p.detach().clone() for p in model.parameters()]]
