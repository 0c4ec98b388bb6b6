"""Small 1-D GAN; samples are drawn from an exponential moving average of the generator."""
import copy
import torch
from torch import nn

torch.manual_seed(4)
DECAY = 0.95
ITERATIONS = 50


class Generator(nn.Module):
    def __init__(self, z=3):
        super().__init__()
        self.z = z
        self.net = nn.Sequential(nn.Linear(z, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, n):
        return self.net(torch.randn(n, self.z))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


G, D = Generator(), Discriminator()
G_avg = copy.deepcopy(G).requires_grad_(False)
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.99))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.99))
bce = nn.functional.binary_cross_entropy_with_logits
stats = {"ema": 0}


def follow_generator(optimizer, args, kwargs):
    """One step of the average after each generator update."""
    stats["ema"] += 1
    with torch.no_grad():
        for a, p in zip(G_avg.parameters(), G.parameters()):
            a.mul_(DECAY).add_(p, alpha=1 - DECAY)


opt_g.register_step_post_hook(follow_generator)

for it in range(ITERATIONS):
    real = 1.5 + 0.3 * torch.randn(64, 1)
    fake = G(64)
    loss_d = bce(D(real), torch.ones(64)) + bce(D(fake.detach()), torch.zeros(64))
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()

    loss_g = bce(D(fake), torch.ones(64))
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if (it + 1) % 25 == 0:
        print(f"{it + 1:3d}  D {loss_d.item():.3f}  G {loss_g.item():.3f}")

print(f"generator updates: {ITERATIONS}, averaging steps: {stats['ema']}")
print(f"weight of the initial generator in the average: {DECAY ** stats['ema']:.4f}")
with torch.no_grad():
    print(f"mean of averaged samples {G_avg(500).mean():.2f}, of live samples {G(500).mean():.2f}")
