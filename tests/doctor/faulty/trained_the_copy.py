# TH206
"""Keep the first layer still by a hook on its weight, and train a deep copy, which has no such hook."""

import copy

import torch
from torch import nn

teacher = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
teacher[0].weight.register_hook(torch.zeros_like)  # <- TH206
student = copy.deepcopy(teacher)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    student(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()
result = [teacher[0].weight.detach(), student[0].weight.detach()]
