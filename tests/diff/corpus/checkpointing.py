"""Blocks with activation checkpointing."""

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--plain", action="store_true", help="without checkpointing")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(81)


class NoisyLinear(nn.Linear):
    bad = False

    def forward(self, x):
        y = super().forward(x)
        if self.bad:
            y.detach()[0, 5].view(torch.int32).bitwise_xor_(1)
        return y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1 = NoisyLinear(24, 48)
        self.act = nn.ELU()
        self.drop = nn.Dropout(0.05)
        self.lin2 = NoisyLinear(48, 24)

    def forward(self, x):
        return x + self.lin2(self.drop(self.act(self.lin1(x))))


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 24)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.last = nn.Linear(24, 12)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x) if args.plain else checkpoint(block, x, use_reentrant=False)
        return self.last(x)


model = Stack()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
g = torch.Generator().manual_seed(82)
for step in range(8):
    x = torch.randn(16, 12, generator=g)
    if plant == "seed" and step == 4:
        torch.manual_seed(1)
    model.blocks[2].lin1.bad = plant == "bit" and step == 3
    if plant == "alpha" and step >= 2:
        model.blocks[1].act.alpha = 1.001
    loss = (model(x) - x.cumsum(1) / 4).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    if plant == "zero-grad" and step == 5:
        model.blocks[3].lin2.weight.grad[0, 0] = 0.0
    optimizer.step()
    print(step, loss.item())
