# TH521
"""A recurrent cell runs once for each time step, and the hook keeps the hidden state of the last step only."""

import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(3, 5), nn.Linear(5, 1)

    def forward(self, x):
        hidden = torch.zeros(x.shape[1], 5)
        for step in x:
            hidden = self.cell(step, hidden)
        return self.head(hidden)


torch.manual_seed(0)
model, states = Recurrent(), {}


def keep(module, args, output):
    states["hidden"] = output.detach()


model.cell.register_forward_hook(keep)  # <- TH521
model(torch.randn(7, 2, 3))
result = states["hidden"]
