# TH527
"""Add noise to the input of an attention layer, and lose its mask."""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, mask=None):
        out, _ = self.attention(x, x, x, attn_mask=mask)
        return x + out


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x):
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        for layer in self.layers:
            x = layer(x, mask)
        return x


def add_noise(module, args):
    return args[0] + 0.01 * torch.randn_like(args[0])


torch.manual_seed(0)
model = Model()
for layer in model.layers:
    layer.register_forward_pre_hook(add_noise)  # <- TH527
result = model(torch.randn(2, 5, 8))
