# TH207
"""Tie the output layer to the embedding by F.linear, and hook the output layer's backward."""

import torch
import torch.nn.functional as F
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.logits = nn.Linear(4, 7, bias=False)

    def forward(self, x):
        return F.linear(self.body(x).tanh(), self.logits.weight)


model, grads = Decoder(), []
model.logits.register_full_backward_hook(lambda m, gi, go: grads.append(go[0].norm()))  # <- TH207
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randn(3, 4)), torch.tensor([0, 5, 6])).backward()
    optimizer.step()
result = grads
