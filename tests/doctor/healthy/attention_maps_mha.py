"""A transformer block with nn.MultiheadAttention: forward hooks on all modules log shapes, one keeps attention maps."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        h = self.norm1(x)
        attended, _ = self.attn(h, h, h, need_weights=True)
        x = x + attended
        return x + self.mlp(self.norm2(x))


model = nn.Sequential(nn.Embedding(20, 16), Block(), Block(), nn.Linear(16, 20))
shapes, maps = {}, []


def log_shape(name):
    def hook(module, args, output):
        first = output[0] if isinstance(output, tuple) else output
        shapes[name] = tuple(first.shape)

    return hook


for name, module in model.named_modules():
    module.register_forward_hook(log_shape(name))
    if isinstance(module, nn.MultiheadAttention):
        module.register_forward_hook(lambda m, args, out: maps.append(out[1].detach()))

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for step in range(4):
    tokens = torch.randint(20, (4, 9))
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, shapes, maps, [p.detach().clone() for p in model.parameters()]]
