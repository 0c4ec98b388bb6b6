"""GAN on stroke images with an averaged generator.

The generator's weights are averaged after each of its updates (decay EMA_DECAY with the
usual warm-up), and images for the report are drawn from the averaged generator.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

torch.manual_seed(19)
torch.set_num_threads(1)

EMA_DECAY = 0.98
STEPS = 80


class Generator(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.fc = nn.Linear(latent, 16 * 4 * 4)
        self.up = nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1)

    def forward(self, z):
        return torch.tanh(self.up(F.relu(self.fc(z)).view(-1, 16, 4, 4)))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 4, stride=2, padding=1)
        self.fc = nn.Linear(16 * 4 * 4, 1)

    def forward(self, x):
        return self.fc(F.leaky_relu(self.conv(x), 0.2).flatten(1))


class WeightAverage:
    def __init__(self, model, decay):
        self.source = model
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self, *unused):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for avg, p in zip(self.model.parameters(), self.source.parameters()):
            avg.lerp_(p, 1 - decay)


def real_images(n):
    x = -torch.ones(n, 1, 8, 8)
    rows = torch.randint(0, 7, (n,))
    for i, r in enumerate(rows.tolist()):
        x[i, 0, r:r + 2] = 1.0
    return x + 0.05 * torch.randn(n, 1, 8, 8)


def main():
    gen, disc = Generator(), Discriminator()
    average = WeightAverage(gen, EMA_DECAY)
    g_opt = torch.optim.Adam(gen.parameters(), lr=2e-3, betas=(0.5, 0.99))
    d_opt = torch.optim.Adam(disc.parameters(), lr=2e-3, betas=(0.5, 0.99))
    handle = register_optimizer_step_post_hook(average.update)

    for step in range(STEPS):
        real, fake = real_images(64), gen(torch.randn(64, 8))
        d_loss = F.softplus(-disc(real)).mean() + F.softplus(disc(fake.detach())).mean()
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()

        g_loss = F.softplus(-disc(fake)).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        if step % 20 == 0:
            print(f"step {step:2d} d_loss {d_loss.item():.3f} g_loss {g_loss.item():.3f}")
    handle.remove()

    pairs = list(zip(average.model.parameters(), gen.parameters()))
    lag = sum((a - p).norm() ** 2 for a, p in pairs) ** 0.5 / sum(p.norm() ** 2 for _, p in pairs) ** 0.5
    print(f"averaged generator: {average.updates} updates in {STEPS} iterations")
    print(f"distance from the current generator {lag.item():.4f}")
    with torch.no_grad():
        sample = average.model(torch.randn(256, 8))
    print(f"mean pixel of averaged samples {sample.mean().item():+.3f}")


if __name__ == "__main__":
    main()
