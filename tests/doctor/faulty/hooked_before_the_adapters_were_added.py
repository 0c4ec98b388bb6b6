# TH229
"""Record the output of each linear layer; afterwards, an adapter takes the place of each of them."""

import torch
from torch import nn


class LowRank(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
outputs = {}
for name, module in list(model.named_children()):
    if isinstance(module, nn.Linear):
        module.register_forward_hook(lambda m, args, out, name=name: outputs.update({name: out.detach()}))  # <- TH229
for name, module in list(model.named_children()):
    if isinstance(module, nn.Linear):
        setattr(model, name, LowRank(module, 2))
for batch in torch.randn(3, 5, 4):
    model(batch).sum().backward()
result = outputs
