"""WGAN-GP on a ring of Gaussians; the interpolation gradient is sanitised before it enters the penalty."""
import math
import torch
from torch import nn

torch.manual_seed(7)
LAMBDA = 10.0
N_CRITIC = 3


def real_batch(n):
    k = torch.randint(0, 8, (n,))
    angle = k * (2 * math.pi / 8)
    return 2 * torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(n, 2)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 48), nn.Softplus(), nn.Linear(48, 48), nn.Softplus(), nn.Linear(48, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


generator = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 2))
critic = Critic()
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.0, 0.9))


def clean(grad):
    # one bad sample must not poison the whole penalty
    return torch.nan_to_num(grad, nan=0.0, posinf=1e3, neginf=-1e3)


def gradient_penalty(real, fake):
    eps = torch.rand(len(real), 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    mix.register_hook(clean)
    score = critic(mix)
    (grad,) = torch.autograd.grad(score.sum(), mix, create_graph=True)
    slope = grad.norm(dim=1)
    return LAMBDA * (slope - 1).pow(2).mean(), slope.mean().item()


history = []
for it in range(120):
    for _ in range(N_CRITIC):
        real = real_batch(64)
        fake = generator(torch.randn(64, 4)).detach()
        penalty, slope = gradient_penalty(real, fake)
        loss_c = critic(fake).mean() - critic(real).mean() + penalty
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
    history.append(slope)
    loss_g = -critic(generator(torch.randn(64, 4))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if (it + 1) % 40 == 0:
        print(f"iteration {it + 1}: critic loss {loss_c.item():.2f}, penalty {penalty.item():.2f}")

tail = sum(history[-20:]) / 20
print(f"mean slope of the critic over the last 20 iterations: {tail:.2f}")
print("critic is about 1-Lipschitz:", 0.6 < tail < 1.4)
