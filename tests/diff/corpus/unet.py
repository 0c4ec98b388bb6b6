"""Denoising of short signals with a 1-D U-Net with skips and batch norm."""

import argparse
import zlib

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--head-first", action="store_true", help="define the modules in another order")
args = parser.parse_args()
plant = args.plant
torch.set_num_threads(1)
step = 0


class Block(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv1d(inside, outside, 3, padding=1)
        self.norm = nn.BatchNorm1d(outside)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        if args.head_first:
            self.head, self.middle = nn.Conv1d(8, 1, 1), Block(16, 32)
            self.up = nn.ModuleList([Block(48, 16), Block(24, 8)])
        self.down = nn.ModuleList([Block(1, 8), Block(8, 16)])
        if not args.head_first:
            self.middle = Block(16, 32)
            self.up = nn.ModuleList([Block(48, 16), Block(24, 8)])
            self.head = nn.Conv1d(8, 1, 1)

    def forward(self, x):
        skips = []
        for number, block in enumerate(self.down):
            x = block(x)
            skips.append(x)
            average = plant == "pool" and number == 1 and step >= 4
            x = F.avg_pool1d(x, 2) if average else F.max_pool1d(x, 2)
        x = self.middle(x)
        for number, block in enumerate(self.up):
            x = F.interpolate(x, scale_factor=2)
            skip = skips.pop()
            x = block(torch.cat([x, skip] if plant == "skip" and number == 1 else [skip, x], 1))
        return self.head(x)


model = UNet()
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.dim() > 1:
            p.normal_(0, 0.2, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
        elif not name.endswith("norm.weight"):
            p.zero_()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
g = torch.Generator().manual_seed(31)
for step in range(16):
    clean = torch.sin(torch.linspace(0, 6, 32) * (1 + 2 * torch.rand(8, 1, 1, generator=g)))
    noisy = clean + 0.3 * torch.randn(8, 1, 32, generator=g)
    if plant == "bn-eval" and step >= 6:
        model.up[0].norm.eval()
    if plant == "bn-momentum" and step == 5:
        model.middle.norm.momentum = 0.3
    if step >= 12:
        model.middle.norm.eval()  # in every run, the statistics of this layer are frozen at the end
    loss = F.l1_loss(model(noisy), clean) if plant == "l1" and step >= 7 else F.mse_loss(model(noisy), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
