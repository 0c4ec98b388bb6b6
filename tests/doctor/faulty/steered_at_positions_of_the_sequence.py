# TH426
"""Steer the positions behind the prompt, although later calls receive one token only."""

import torch
from torch import nn

torch.manual_seed(0)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.block = nn.Linear(4, 4)
        self.head = nn.Linear(4, 10)

    def forward(self, tokens):
        return self.head(self.block(self.embed(tokens)))

    @torch.no_grad()
    def generate(self, tokens, count):
        new = tokens
        for _ in range(count):
            new = self(new)[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, new], dim=1)
        return tokens


model = Decoder()
prompt = torch.tensor([[1, 2, 3, 4]])


def steer(module, args, output):
    changed = output.clone()
    changed[:, prompt.shape[1] :] += 100
    return changed


model.block.register_forward_hook(steer)  # <- TH426
result = model.generate(prompt, 5)
