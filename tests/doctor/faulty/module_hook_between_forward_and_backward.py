# TH201
"""Print the gradient of a layer's output: the hook comes after the forward, in time for the backward as it seems."""

import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 6)
        self.out = nn.Linear(6, 1)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


model = Regressor()
grads = []
loss = model(torch.randn(8, 4)).square().mean()
model.hidden.register_full_backward_hook(lambda m, gi, go: grads.append(go[0]))  # <- TH201
loss.backward()
result = grads
