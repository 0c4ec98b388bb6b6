# TH205
"""Add a token to the vocabulary: the embedding gets a new weight, and the hook stays on the old one."""

import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.embed = nn.Embedding(words, 4)
        self.head = nn.Linear(4, words)

    def forward(self, tokens):
        return self.head(self.embed(tokens))

    def add_word(self):
        old = self.embed.weight.data
        self.embed.weight = nn.Parameter(torch.cat([old, old.mean(0, keepdim=True)]))
        self.embed.num_embeddings += 1


model = LanguageModel(6)
model.embed.weight.register_hook(lambda grad: grad * 0.1)  # <- TH205
model.add_word()
model(torch.tensor([[1, 6], [2, 6]])).square().mean().backward()
result = model.embed.weight.grad
