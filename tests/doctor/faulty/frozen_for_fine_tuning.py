# TH203
"""Damp the gradient of the embedding; then the set-up for fine-tuning freezes all but the head."""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, tokens):
        return self.head(self.embed(tokens).mean(1))


def prepare_for_fine_tuning(model):
    for name, p in model.named_parameters():
        p.requires_grad = name.startswith("head")


model = Tagger()
model.embed.weight.register_hook(lambda grad: grad * 0.1)  # <- TH203
prepare_for_fine_tuning(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randint(20, (4, 5))), torch.tensor([0, 1, 2, 0])).backward()
    optimizer.step()
result = model.embed.weight.detach()
