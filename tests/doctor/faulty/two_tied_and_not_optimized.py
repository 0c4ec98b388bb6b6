# TH310 TH405
"""Halve every gradient, tied names included; double one that no optimizer holds."""

import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.mix = nn.Linear(4, 4, bias=False)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens)))


model = Tied()
for name, p in model.named_parameters(remove_duplicate=False):
    if name.startswith(("embed", "head")):
        p.register_hook(lambda grad: grad / 2)  # <- TH405
model.mix.weight.register_hook(lambda grad: grad * 2)  # <- TH310
optimizer = torch.optim.SGD(model.embed.parameters(), lr=0.1)
for tokens in torch.randint(0, 7, (3, 2, 5)):
    model.zero_grad()
    nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
