"""A GAN on a ring of eight Gaussians whose two losses oscillate while the samples improve."""

import hashlib
import math

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(8)


def real(n):
    """Draw samples of the ring."""
    angle = torch.randint(0, 8, (n,)) * (2 * math.pi / 8)
    return torch.stack([angle.cos(), angle.sin()], 1) * 2 + 0.1 * torch.randn(n, 2)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
        )

    def forward(self, x):
        return self.main(x)


def quality(gen):
    """Return the mean distance of samples from the circle."""
    with torch.no_grad():
        return (gen(torch.randn(1000, 8)).norm(dim=1) - 2).abs().mean().item()


G, D = Generator(), Discriminator()
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
before = quality(G)
for step in range(1300):
    x, z = real(64), torch.randn(64, 8)
    fake = G(z)
    loss_d = bce(D(x), torch.ones(64, 1)) + bce(D(fake.detach()), torch.zeros(64, 1))
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    loss_g = bce(D(fake), torch.ones(64, 1))
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
after = quality(G)
print(f"distance {before:.3f} -> {after:.3f}, losses {loss_d.item():.3f} {loss_g.item():.3f}")
assert after < 0.3 * before
print("digest", digest(G, D))
