# TH523
"""The mean activation is computed from the batches of the training and of the validation."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
means = []
model[1].register_forward_hook(lambda module, args, output: means.append(output.detach().mean()))  # <- TH523
for _ in range(3):
    model.train()
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        model(torch.randn(8, 4))
result = torch.stack(means).mean()
