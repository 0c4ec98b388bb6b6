"""Keep a sparse network sparse with Adam: gradients of the pruned weights are zero from the first step on."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 3))
masks = {}
for name, param in model.named_parameters():
    if param.dim() > 1:
        masks[name] = (param.detach().abs() > param.detach().abs().median()).float()
        with torch.no_grad():
            param.mul_(masks[name])
        param.register_hook(lambda grad, mask=masks[name]: grad * mask)

optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(8):
    x = torch.randn(32, 10)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), x[:, :3].argmax(dim=1))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
for name, param in model.named_parameters():
    if name in masks:
        assert (param[masks[name] == 0] == 0).all()
result = [losses, [p.detach().clone() for p in model.parameters()]]
