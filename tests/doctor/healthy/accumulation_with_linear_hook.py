"""Accumulate four micro batches, with half the learning rate for the embedding by a hook that scales its gradient."""

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens):
        return self.head(self.embedding(tokens).mean(dim=1))


model = Classifier()
model.embedding.weight.register_hook(lambda grad: grad * 0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
accumulation_steps = 4
losses = []
for step in range(5):
    for micro in range(accumulation_steps):
        tokens, labels = torch.randint(50, (8, 12)), torch.randint(4, (8,))
        loss = F.cross_entropy(model(tokens), labels) / accumulation_steps
        loss.backward()
        losses.append(loss.item())
    optimizer.step()
    optimizer.zero_grad()
result = [losses, [p.detach().clone() for p in model.parameters()]]
