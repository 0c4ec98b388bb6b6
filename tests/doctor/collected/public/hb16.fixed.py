"""Activation statistics of a small diffusion U-Net, per activation function and noise level."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(15)
torch.set_num_threads(1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb=32):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.norm2 = nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()
        self.act1 = nn.SiLU()
        self.act2 = nn.SiLU()

    def forward(self, x, emb):
        h = self.conv1(self.act1(self.norm1(x)))
        h = h + self.emb(emb)[:, :, None, None]
        h = self.conv2(self.act2(self.norm2(h)))
        return h + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.inp = nn.Conv2d(1, width, 3, padding=1)
        self.down = ResBlock(width, 2 * width)
        self.mid = ResBlock(2 * width, 2 * width)
        self.up = ResBlock(3 * width, width)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t):
        freq = torch.exp(-math.log(100.0) * torch.arange(16) / 16)
        angle = t[:, None] * freq
        emb = torch.cat([angle.sin(), angle.cos()], 1)
        skip = self.inp(x)
        h = self.mid(self.down(F.avg_pool2d(skip, 2), emb), emb)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        return self.out(self.up(torch.cat([h, skip], 1), emb))


class ActivationLog:
    def __init__(self, model):
        self.current, self.table = {}, []
        self.handles = [m.register_forward_hook(self.measure(name))
                        for name, m in model.named_modules() if isinstance(m, nn.SiLU)]

    def measure(self, name):
        def hook(module, inputs, output):
            self.current[name] = (inputs[0].std().item(), output.numel())
        return hook

    def next_level(self):
        self.table.append(self.current)
        self.current = {}

    def remove(self):
        for handle in self.handles:
            handle.remove()


def noised(clean, t):
    alpha = torch.cos(0.5 * math.pi * t)[:, None, None, None]
    noise = torch.randn_like(clean)
    return alpha * clean + (1 - alpha ** 2).sqrt() * noise, noise


def digits(n):
    return F.interpolate(torch.randn(n, 1, 3, 3), size=16, mode="bicubic", align_corners=False)


def main():
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(40):
        clean, t = digits(8), torch.rand(8)
        x, noise = noised(clean, t)
        loss = F.mse_loss(model(x, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"denoising loss {loss.item():.3f}")

    model.eval()
    log = ActivationLog(model)
    levels = (0.1, 0.5, 0.9)
    with torch.no_grad():
        for level in levels:
            t = torch.full((4,), level)
            model(noised(digits(4), t)[0], t)
            log.next_level()
    log.remove()
    for name in log.table[0]:
        print(f"{name:10s} input std", [f"{row[name][0]:.3f}" for row in log.table])
    values = sum(n for _, n in log.table[0].values())
    print(f"activation functions in the report: {len(log.table[0])}, values per pass: {values}")


if __name__ == "__main__":
    main()
