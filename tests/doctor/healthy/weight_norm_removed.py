"""Old-style weight norm (a forward pre hook) while training, removed for the deployment copy of the weights."""

import warnings

import torch
from torch import nn
from torch.nn.utils import remove_weight_norm, weight_norm

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    model = nn.Sequential(weight_norm(nn.Conv1d(2, 8, 3)), nn.ReLU(), nn.Flatten(), weight_norm(nn.Linear(48, 1)))
lengths = []
model[0].weight_g.register_hook(lambda grad: lengths.append(grad.norm()))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(5):
    x = torch.randn(16, 2, 8)
    loss = (model(x).squeeze(1) - x.mean(dim=(1, 2))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
for layer in (model[0], model[3]):
    remove_weight_norm(layer)
result = [losses, lengths, [p.detach().clone() for p in model.parameters()]]
