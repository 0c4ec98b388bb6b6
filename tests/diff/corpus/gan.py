"""A small GAN: two models, each with its own optimizer."""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(101)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = nn.Linear(4, 16)
        self.refine = nn.Linear(16, 2)

    def forward(self, z):
        return self.refine(F.leaky_relu(self.expand(z), 0.2))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(2, 16)
        self.score = nn.Linear(16, 1)

    def forward(self, x):
        return self.score(F.leaky_relu(self.features(x), 0.2))


G, D = Generator(), Critic()
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.9))
source = torch.Generator().manual_seed(102)
for it in range(8):
    real = torch.randn(32, 2, generator=source) * 0.5 + 1
    z = torch.randn(32, 4, generator=source)
    if plant == "critic-weight" and it == 3:
        D.score.weight.data[0, 2] += 1e-3
    if plant == "critic-lr" and it >= 2:
        opt_d.param_groups[0]["lr"] = 3e-3
    with torch.no_grad():
        fake = G(z)
    opt_d.zero_grad()
    loss_d = F.softplus(-D(real)).mean() + F.softplus(D(fake)).mean()
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_g = F.softplus(-D(G(z))).mean()
    loss_g.backward()
    opt_g.step()
    print(it, loss_d.item(), loss_g.item())
