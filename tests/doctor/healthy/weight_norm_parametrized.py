"""Weight normalization by parametrization; log the gradients of length and direction apart."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, weight_norm

model = nn.Sequential(
    weight_norm(nn.Linear(6, 16)), nn.ELU(), orthogonal(nn.Linear(16, 16)), nn.ELU(), weight_norm(nn.Linear(16, 1))
)
length, direction = [], []
for layer in (model[0], model[4]):
    layer.parametrizations.weight.original0.register_hook(lambda grad: length.append(grad.abs().mean().item()))
    layer.parametrizations.weight.original1.register_hook(lambda grad: direction.append(grad.abs().mean().item()))

optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(8):
    x = torch.randn(32, 6)
    loss = nn.functional.smooth_l1_loss(model(x), x.prod(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, length, direction, [p.detach().clone() for p in model.parameters()]]
