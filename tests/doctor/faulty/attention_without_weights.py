# TH522
"""Keep the attention weights of a layer that does not compute them."""

import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        out, _ = self.attention(x, x, x, need_weights=False)
        return x + out


model, maps = nn.Sequential(Block(), Block()), []
for block in model:
    block.attention.register_forward_hook(lambda module, args, output: maps.append(output[1]))  # <- TH522
model(torch.randn(2, 5, 8))
result = len(maps)
