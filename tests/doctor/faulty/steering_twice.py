# TH403
"""Add one to a layer's output; setup() is called by the constructor and once more by hand."""

import torch
from torch import nn


class Steered(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.setup()

    def setup(self):
        self.fc.register_forward_hook(self.add_one)  # <- TH403

    def add_one(self, module, args, output):
        return output + 1

    def forward(self, x):
        return self.fc(x)


model = Steered()
model.setup()
x = torch.zeros(1, 2)
result = (model(x) - model.fc.bias).detach()
