# TH427
"""Clip the gradient of a GRU, which computes all time steps at once."""

import torch
from torch import nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 4, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.gru(x)[0])


model = Model()
model.gru.weight_hh_l0.register_hook(lambda grad: grad.clamp(-0.001, 0.001))  # <- TH427
model(torch.ones(2, 20, 3)).sum().backward()
result = model.gru.weight_hh_l0.grad
