"""A model that can be compiled."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(131)


class FeedForward(nn.Module):
    def __init__(self, approximate):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 64)
        self.act = nn.GELU(approximate)
        self.down = nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Linear(6, 16)
        self.layers = nn.ModuleList(FeedForward("tanh" if plant == "gelu" and i == 1 else "none") for i in range(3))
        self.end = nn.Linear(16, 2)

    def forward(self, x):
        x = self.start(x)
        for layer in self.layers:
            x = layer(x)
        return self.end(x)


net = Net()
model = torch.compile(net, backend="aot_eager") if args.compile else net
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
g = torch.Generator().manual_seed(132)
for step in range(8):
    x = torch.randn(32, 6, generator=g)
    y = torch.stack([x.prod(1), x.amax(1)], 1)
    if plant == "lr" and step >= 4:
        optimizer.param_groups[0]["lr"] = 2e-3
    if plant == "weight" and step == 3:
        net.layers[0].up.weight.data[2, 2] += 0.05
    if plant == "label" and step == 5:
        y[0, 0] += 1.0
    loss = torch.nn.functional.smooth_l1_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    if plant == "double-grad" and step == 3:
        net.layers[2].down.weight.grad.mul_(2)
    optimizer.step()
    print(step, loss.item())
