"""A mixture of experts with top-1 routing and an auxiliary loss for the balance."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--listed", action="store_true", help="write the loop over the experts in another way")
args = parser.parse_args()
plant = args.plant
torch.set_num_threads(1)
torch.manual_seed(41)
step = 0


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.fast = False

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh" if self.fast else "none"))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(16, 4), nn.ModuleList([Expert() for _ in range(4)])
        self.temperature, self.swapped, self.drop_last = 1.0, False, False

    def forward(self, x):
        chance = (self.router(x) / self.temperature).softmax(1)
        gate, choice = chance.max(1)
        choice = torch.tensor([0, 2, 1, 3])[choice] if self.swapped else choice
        aux = 4 * (F.one_hot(choice, 4).float().mean(0) * chance.mean(0)).sum()
        tokens = [(choice == e).nonzero()[:, 0] for e in range(4)]
        y = torch.zeros_like(x)
        tokens[0] = tokens[0][:-1] if self.drop_last else tokens[0]
        if args.listed:
            parts = [self.experts[e](x[tokens[e]]) for e in range(4)]
        else:
            parts = (expert(x[where]) for expert, where in zip(self.experts, tokens))
        for where, part in zip(tokens, parts):
            y = y.index_add(0, where, part)
        return x + gate[:, None] * y, aux


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(6, 16), nn.Linear(16, 1)
        self.blocks = nn.ModuleList([Mixture(), Mixture()])

    def forward(self, x):
        x, first = self.blocks[0](self.stem(x))
        x, second = self.blocks[1](x)
        return self.head(x), first + second


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
net.blocks[1].experts[2].fast = plant == "gelu"
for step in range(15):
    x = torch.randn(64, 6)
    net.blocks[1].temperature = 1.01 if plant == "temperature" and step >= 6 else 1.0
    net.blocks[1].swapped, net.blocks[0].drop_last = plant == "swap" and step == 5, plant == "drop-token" and step == 7
    if plant == "ulp" and step == 8:
        row = net.blocks[1].experts[2].up.weight.data[5]
        row[3] = torch.nextafter(row[3], torch.tensor(9.0))
    y, aux = net(x)
    loss = (y - x.prod(1, keepdim=True)).square().mean() + (0.02 if plant == "aux" and step >= 4 else 0.01) * aux
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
