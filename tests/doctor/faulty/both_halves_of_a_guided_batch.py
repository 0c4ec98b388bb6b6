# TH544
"""Average the features of a guided sampler over the batch, half of which has no condition."""

import torch
from torch import nn

torch.manual_seed(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Linear(6, 4)
        self.out = nn.Linear(4, 4)

    def forward(self, x, condition):
        return self.out(self.block(torch.cat([x, condition], dim=1)).tanh())


model = Denoiser()
maps = []
model.block.register_forward_hook(lambda module, args, output: maps.append(output.mean(0)))  # <- TH544
x = torch.randn(3, 4)
with torch.no_grad():
    for _ in range(4):
        condition = torch.cat([torch.zeros(3, 2), torch.ones(3, 2)])
        without, with_condition = model(torch.cat([x, x]), condition).chunk(2)
        x = x - 0.1 * (without + 3 * (with_condition - without))
result = torch.stack(maps)
