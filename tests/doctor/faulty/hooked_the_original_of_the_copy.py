# TH206
"""Record features of the model that trains; the hook is put on the one that it was copied from."""

import copy

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.features(x).relu())


base = Net()
model = copy.deepcopy(base)
features = []
base.features.register_forward_hook(lambda m, args, out: features.append(out.detach()))  # <- TH206
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(2, 3)), torch.tensor([0, 1])).backward()
    optimizer.step()
result = features
