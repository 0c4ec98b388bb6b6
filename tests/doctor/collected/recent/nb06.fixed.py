"""Adapt a weight-normalised encoder to new images while keeping half of its filters.

The first KEEP filters of every convolution were tuned for the original task and must
stay exactly as they are; the others are free to move during adaptation.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(5)
torch.set_num_threads(1)

WIDTH = 12
KEEP = 6


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = weight_norm(nn.Conv2d(1, WIDTH, 3, padding=1, bias=False))
        self.conv2 = weight_norm(nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False))

    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.conv1(x))))

    def convs(self):
        return [self.conv1, self.conv2]


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = nn.Conv2d(WIDTH, 1, 3, padding=1)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def gratings(n, frequency, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    angle = torch.rand(n, 1, 1, generator=g) * 3.1416
    phase = torch.rand(n, 1, 1, generator=g) * 6.2832
    return torch.sin(frequency * (angle.cos() * xx + angle.sin() * yy) + phase).unsqueeze(1)


def protect_filters(encoder, keep):
    free = torch.ones(WIDTH, 1, 1, 1)
    free[:keep] = 0.0
    for conv in encoder.convs():
        for p in conv.parametrizations.weight.parameters():
            p.register_hook(lambda grad: grad * free)


def fit(model, images, steps, lr):
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    first = None
    for step in range(steps):
        batch = images[torch.arange(step * 32, step * 32 + 32) % len(images)]
        noisy = batch + 0.5 * torch.randn_like(batch)
        loss = F.mse_loss(model(noisy), batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        first = loss.item() if first is None else first
    return first, loss.item()


def snapshot(encoder):
    return [conv.weight.detach().clone() for conv in encoder.convs()]


def main():
    model = AutoEncoder()
    first, last = fit(model, gratings(128, 0.6, seed=1), steps=60, lr=0.1)
    print(f"original task: loss {first:.4f} -> {last:.4f}")

    protect_filters(model.encoder, KEEP)
    before = snapshot(model.encoder)
    first, last = fit(model, gratings(128, 1.8, seed=2), steps=60, lr=0.1)
    print(f"new task: loss {first:.4f} -> {last:.4f}")

    for number, (old, new) in enumerate(zip(before, snapshot(model.encoder)), 1):
        change = (new - old).flatten(1).norm(dim=1) / old.flatten(1).norm(dim=1)
        print(f"conv{number}: mean change of kept filters {change[:KEEP].mean().item():.5f},"
              f" of free filters {change[KEEP:].mean().item():.5f}")


if __name__ == "__main__":
    main()
