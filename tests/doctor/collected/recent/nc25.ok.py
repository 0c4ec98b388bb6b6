"""Exponential moving average copy of a network that standardises its own inputs.

The moments are kept by a forward hook that the module registers on its entry point;
the copy keeps moments of its own because the hook belongs to the module.
"""
import copy

import torch
from torch import nn

torch.set_num_threads(1)


class SelfStandardising(nn.Module):
    def __init__(self, d_in=10, width=24):
        super().__init__()
        self.entry = nn.Identity()
        self.enc = nn.Sequential(nn.Linear(d_in, width), nn.Tanh())
        self.out = nn.Linear(width, 1)
        self.register_buffer("mean", torch.zeros(d_in))
        self.register_buffer("var", torch.ones(d_in))
        self.register_buffer("count", torch.zeros(()))
        self.entry.register_forward_hook(self.standardise)

    def standardise(self, module, args, out):
        if self.training:
            with torch.no_grad():
                self.count += 1
                rate = 1 / self.count.clamp(max=50)
                self.mean.lerp_(out.mean(0), rate.item())
                self.var.lerp_(out.var(0), rate.item())
        return (out - self.mean.clone()) / (self.var + 1e-4).sqrt()

    def forward(self, x):
        return self.out(self.enc(self.entry(x))).squeeze(-1)


@torch.no_grad()
def follow(ema, model, decay=0.9):
    for e, p in zip(ema.parameters(), model.parameters()):
        e.lerp_(p, 1 - decay)


def make_data(n=500):
    g = torch.Generator().manual_seed(44)
    x = 5 + 3 * torch.randn(n, 10, generator=g)
    return x, (x[:, :3] / 3).sin().sum(1)


def main():
    torch.manual_seed(0)
    x, y = make_data()
    model = SelfStandardising()
    ema = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(200):
        idx = torch.randint(0, 400, (40,))
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        follow(ema, model)
        if step % 2 == 0:
            ema(x[idx])
    model.eval()
    ema.eval()
    with torch.no_grad():
        test = [nn.functional.mse_loss(m(x[400:]), y[400:]).item() for m in (model, ema)]
    print(f"test loss  model {test[0]:.4f}  average {test[1]:.4f}")
    print(f"updates of the moments  model {int(model.count)}  average {int(ema.count)}")
    print(f"largest error of the average's mean {(x[:400].mean(0) - ema.mean).abs().max().item():.3f}")
    assert int(model.count) == 200 and int(ema.count) == 100


if __name__ == "__main__":
    main()
