# TH108
"""Record the activations of training; the averaged copy for evaluation writes its own into the same list."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
means = []
model[1].register_forward_hook(lambda m, args, out: means.append(out.detach().mean()))  # <- TH108
averaged = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    averaged.update_parameters(model)
    with torch.no_grad():
        averaged(torch.randn(8, 4))
result = means
