"""Add annealed Gaussian noise to every gradient (Neelakantan et al.) by parameter hooks."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 4))
state = {"step": 0}


def add_noise(grad, eta=0.3, gamma=0.55):
    sigma = (eta / (1 + state["step"]) ** gamma) ** 0.5
    return grad + sigma * torch.randn_like(grad)


for param in model.parameters():
    param.register_hook(add_noise)

optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for step in range(10):
    state["step"] = step
    x = torch.randn(32, 12)
    y = x[:, :4].argmax(dim=1)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, [p.detach().clone() for p in model.parameters()]]
