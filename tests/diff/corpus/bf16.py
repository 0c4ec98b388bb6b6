"""Classification under bfloat16 autocast, with fake quantization and a straight-through gradient."""

import argparse
import contextlib

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--accumulate", type=int, default=1)
args = parser.parse_args()
plant = args.plant
torch.set_num_threads(1)
torch.manual_seed(91)
step = 0


class RoundThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, clip):
        ctx.save_for_backward(x)
        ctx.clip = clip
        return (x.clamp(-2, 2) * 8).round() / 8

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return (grad * (x.abs() <= 2) if ctx.clip else grad), None


class Quantize(nn.Module):
    def forward(self, x):
        return RoundThrough.apply(x, not (plant == "through" and step >= 6))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, stride=2)
        self.quantize = Quantize()
        self.mid = nn.Linear(54, 32)
        self.norm = nn.GroupNorm(4, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        x = self.quantize(5 * self.conv(x)).flatten(1)
        full = plant == "full-precision" and step >= 5
        with torch.autocast("cpu", enabled=False) if full else contextlib.nullcontext():
            x = self.mid(x.float() if full else x)
        return self.head(torch.tanh(self.norm(x)))


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.05)
g = torch.Generator().manual_seed(92)
x = torch.randn(320, 1, 8, 8, generator=g)
y = (x[:, 0, :4, :4].mean((1, 2)) * 4).round().long().clamp(-2, 1) + 2
order = torch.randperm(320, generator=g)
for step in range(16):
    if plant == "order" and step == 8:
        order[step * 20 :] = order[step * 20 :].flip(0)
    if plant == "beta" and step >= 3:
        optimizer.param_groups[0]["betas"] = (0.9, 0.9)
    optimizer.zero_grad()
    parts = list(order[step * 20 : step * 20 + 20].chunk(args.accumulate))
    if plant == "exchange" and step == 7:
        parts.reverse()
    for part in parts:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = net(x[part])
        smooth = 0.1 if plant == "smooth" and step >= 4 else 0.0
        loss = F.cross_entropy(logits.float(), y[part], label_smoothing=smooth) / len(parts)
        loss.backward()
    optimizer.step()
    print(step, loss.item())
