"""Post-training quantisation by hand: record activation ranges, then fake-quantise.

Each block is conv -> batch norm -> ReLU.  The blocks are fused first, the ranges are
collected on calibration images, and the fused network is run with 8-bit activations.
"""
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.ao.quantization import fuse_modules

warnings.filterwarnings("ignore")
torch.manual_seed(20)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(cout)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.bn(self.conv(x)))


class Net(nn.Module):
    def __init__(self, width=8, classes=4):
        super().__init__()
        self.block1 = Block(1, width, 1)
        self.block2 = Block(width, width, 2)
        self.block3 = Block(width, width, 1)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.block3(self.block2(self.block1(x))).mean((2, 3)))


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    waves = torch.stack([xx, yy, 0.7 * (xx + yy), 0.7 * (xx - yy)])
    y = torch.randint(0, 4, (n,), generator=g)
    phase = torch.rand(n, 1, 1, generator=g) * 6.28
    x = torch.sin(1.5 * waves[y] + phase) + 0.3 * torch.randn(n, 12, 12, generator=g)
    return x.unsqueeze(1), y


def train(net, x, y, steps=50):
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(steps):
        idx = torch.arange(step * 64, step * 64 + 64) % len(x)
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()


def record_ranges(net):
    """Largest activation per block; the batch norm is what sets the range."""
    ranges = {}
    for name, module in net.named_modules():
        if isinstance(module, nn.ReLU):
            def observe(module, args, output, block=name.split(".")[0]):
                ranges[block] = max(ranges.get(block, 0.0), output.max().item())
            module.register_forward_hook(observe)
    return ranges


def quantise(net, ranges):
    for block, top in ranges.items():
        scale = top / 255
        net.get_submodule(block).register_forward_hook(
            lambda module, args, output, s=scale: (output / s).round().clamp(0, 255) * s)


@torch.no_grad()
def main():
    x, y = make_data(512, seed=1)
    net = Net()
    with torch.enable_grad():
        train(net, x, y)
    ranges = record_ranges(net)
    print("output shape for one image:", tuple(net(torch.zeros(1, 1, 12, 12)).shape))

    fused = fuse_modules(net, [[f"block{i}.conv", f"block{i}.bn", f"block{i}.relu"] for i in (1, 2, 3)])
    for i in range(0, 256, 64):
        fused(x[i:i + 64])
    print("ranges:", ", ".join(f"{k} 0..{v:.2f}" for k, v in ranges.items()))

    xt, yt = make_data(256, seed=2)
    exact = fused(xt)
    quantise(fused, ranges)
    approx = fused(xt)
    sqnr = 10 * torch.log10(exact.pow(2).mean() / (exact - approx).pow(2).mean())
    print(f"accuracy: float {(exact.argmax(1) == yt).float().mean().item():.3f},"
          f" 8 bit {(approx.argmax(1) == yt).float().mean().item():.3f}")
    print(f"signal to quantisation noise {sqnr.item():.1f} dB")


if __name__ == "__main__":
    main()
