# TH108
"""Count the calls of a layer, and train a deep copy: the copy counts for itself."""

import copy

import torch
from torch import nn


class CallCounter:
    def __init__(self):
        self.calls = 0

    def __call__(self, module, args, output):
        self.calls += 1


counter = CallCounter()
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
model[0].register_forward_hook(counter)  # <- TH108
student = copy.deepcopy(model)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    student(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()
result = torch.tensor(counter.calls)
