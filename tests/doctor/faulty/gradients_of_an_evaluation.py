# TH214
"""Look for dead units by a backward hook, in an evaluation that has no backward."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
dead = []
model[1].register_full_backward_hook(lambda m, gi, go: dead.append((go[0] == 0).sum()))  # <- TH214
correct = 0
for _ in range(2):
    correct += (model(torch.randn(4, 4)).argmax(1) == torch.tensor([0, 1, 0, 1])).sum()
result = [correct, *dead]
