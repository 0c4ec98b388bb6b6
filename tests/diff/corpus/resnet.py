"""Residual network in which one block and one activation are used several times."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(21)
current = 0


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x, act):
        h = self.conv2(act(self.conv1(act(self.norm(x)))))
        if plant == "branch" and current >= 3:
            h = h * 1.001
        return x + h


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.LeakyReLU(0.1)
        self.inp = nn.Conv2d(1, 16, 3, padding=1)
        self.recurrent = Residual(16)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = self.inp(x)
        x = self.recurrent(x, self.act)
        if plant == "second-use" and current >= 2:
            x = x * 1.0005
        x = self.recurrent(x, self.act)
        return self.fc(self.pool(self.act(x)).flatten(1))


net = Net()
opt = torch.optim.NAdam(net.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=21 if plant == "cosine" else 20)
g = torch.Generator().manual_seed(22)
for current in range(8):
    images = torch.rand(8, 1, 12, 12, generator=g)
    labels = (images.mean((1, 2, 3)) * 1e4).long() % 4
    if plant == "slope" and current >= 2:
        net.act.negative_slope = 0.11
    if plant == "pool" and current == 5:
        net.pool = nn.AdaptiveMaxPool2d(1)
    loss = nn.functional.cross_entropy(net(images), labels)
    opt.zero_grad()
    loss.backward()
    if plant == "conv2-bias" and current == 3:
        net.recurrent.conv2.bias.grad[0] *= -1
    opt.step()
    schedule.step()
    print(current, round(loss.item(), 6))
