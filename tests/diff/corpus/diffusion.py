"""Toy diffusion on points of a spiral: an MLP predicts the noise."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--lr", type=float, default=2e-3)
args = parser.parse_args()
plant = args.plant
torch.set_num_threads(1)
torch.manual_seed(61)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return grad * (s + ctx.factor * x * s * (1 - s)), None


class Activation(nn.Module):
    factor = 1.0

    def forward(self, x):
        return F.silu(x) if args.compile else Swish.apply(x, self.factor)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), Activation(), nn.Linear(32, 32))
        self.inside = nn.Linear(2, 32)
        self.body = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), Activation(), nn.Linear(32, 32), Activation())
        self.outside = nn.Linear(32, 2)
        self.period = 1e4

    def forward(self, x, t):
        angle = t[:, None] * self.period ** (-torch.arange(8) / 8)
        emb = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        return self.outside(self.body(self.inside(x) + emb))


net = Denoiser()
model = torch.compile(net, backend="aot_eager") if args.compile else net
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
keep = torch.cumprod(1 - torch.linspace(1e-3, 0.21 if plant == "schedule" else 0.2, 50), 0)
for step in range(16):
    if plant == "noise-seed" and step == 6:
        torch.manual_seed(62)
    angle = 6 * torch.rand(48, 1)
    clean = torch.cat([angle.cos(), angle.sin()], 1) * angle / 6
    t = torch.randint(50, (48,))
    noise = torch.randn_like(clean)
    noisy = keep[t, None].sqrt() * clean + (1 - keep[t, None]).sqrt() * noise
    if plant == "period" and step == 4:
        net.period = 9e3
    if plant == "lr" and step >= 8:
        optimizer.param_groups[0]["lr"] = 1e-3
    if plant == "eps" and step == 3:
        optimizer.param_groups[0]["eps"] = 1e-4
    net.body[2].factor = 0.9 if plant == "swish-backward" and step == 8 else 1.0
    guess = model(noisy, t.float())
    loss = F.mse_loss(guess, clean if plant == "target" and step == 5 else noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
