# TH405
"""Halve all gradients; the head shares its weight with the embedding and gets the hook twice."""

import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=11, width=4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


model = LanguageModel()
for name, p in model.named_parameters(remove_duplicate=False):
    p.register_hook(lambda grad: grad * 0.5)  # <- TH405
tokens = torch.randint(0, 11, (3, 5))
model(tokens).logsumexp(-1).mean().backward()
result = model.embed.weight.grad
