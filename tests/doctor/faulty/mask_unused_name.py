# TH301
"""Keep half of the rows of an embedding from learning."""

import torch
from torch import nn

embedding = nn.Embedding(10, 4)
frozen_rows = torch.arange(10) < 5
before = embedding.weight.detach().clone()


def freeze_rows(grad):
    masked_grad = grad.masked_fill(frozen_rows[:, None], 0.0)


embedding.weight.register_hook(freeze_rows)  # <- TH301
optimizer = torch.optim.SGD(embedding.parameters(), lr=0.5)
for _ in range(2):
    optimizer.zero_grad()
    embedding(torch.arange(10)).pow(2).sum().backward()
    optimizer.step()
result = (embedding.weight - before).detach()
