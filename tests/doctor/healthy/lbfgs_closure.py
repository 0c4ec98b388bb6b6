"""Fit a curve with LBFGS: the closure runs several backwards in a step, each on a cleared gradient, each limited."""

import torch
from torch import nn

x = torch.linspace(-2, 2, 64).unsqueeze(1)
y = torch.sin(3 * x)
model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
for param in model.parameters():
    param.register_hook(lambda grad: torch.nan_to_num(grad).clamp(-0.1, 0.1))

optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6, history_size=5)
losses = []


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    losses.append(loss.item())
    return loss


for step in range(4):
    optimizer.step(closure)
result = [losses, [p.detach().clone() for p in model.parameters()]]
