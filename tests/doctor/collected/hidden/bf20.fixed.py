"""VAE trained with annealed gradient noise: strong exploration in the beginning, almost none at the end."""
import functools
import torch
from torch import nn

torch.manual_seed(23)
EPOCHS, ETA = 6, 0.3


class VAE(nn.Module):
    def __init__(self, n=20, z=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(n, 32), nn.ReLU(), nn.Linear(32, 2 * z))
        self.dec = nn.Sequential(nn.Linear(z, 32), nn.ReLU(), nn.Linear(32, n))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


class NoiseSchedule:
    def __init__(self, eta):
        self.eta, self.t = eta, 0
        self.log = []

    @property
    def sigma(self):
        return self.eta / (1 + self.t) ** 2

    def next_epoch(self):
        self.t += 1


def noisy(grad, schedule):
    noise = schedule.sigma * torch.randn_like(grad)
    schedule.log.append(noise.abs().mean().item())
    return grad + noise


def elbo(x, out):
    recon, mu, logvar = out
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(dim=1)
    return ((recon - x).pow(2).sum(dim=1) + kl).mean()


vae = VAE()
schedule = NoiseSchedule(ETA)
for p in vae.parameters():
    p.register_hook(functools.partial(noisy, schedule=schedule))

optimizer = torch.optim.Adam(vae.parameters(), lr=3e-3)
basis = torch.randn(3, 20)
data = torch.randn(512, 3) @ basis + 0.1 * torch.randn(512, 20)

for epoch in range(EPOCHS):
    schedule.log.clear()
    total = 0.0
    for i in range(0, len(data), 64):
        x = data[i:i + 64]
        loss = elbo(x, vae(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    level = sum(schedule.log) / len(schedule.log)
    print(f"epoch {epoch}: loss {total / 8:8.3f}   mean |noise| {level:.4f}")
    schedule.next_epoch()

print(f"noise level planned for the last epoch: {0.8 * ETA / EPOCHS ** 2:.4f}")
