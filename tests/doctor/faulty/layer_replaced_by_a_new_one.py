# TH205
"""Hook the head, and then give the model a new head for another number of classes."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.fc = nn.Linear(8, classes)

    def forward(self, x):
        return self.fc(self.body(x).relu())


model = Net(1000)
model.fc.weight.register_hook(lambda grad: grad / grad.norm())  # <- TH205
model.fc = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
nn.functional.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 2, 0])).backward()
optimizer.step()
result = model.fc.weight.grad.norm()
