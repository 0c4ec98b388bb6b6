"""A one-dimensional GAN whose generator is averaged (EMA) after every generator update."""
import copy

import torch
import torch.nn as nn
from torch.optim.optimizer import register_optimizer_step_post_hook

torch.manual_seed(16)


def mlp(d_in, d_out):
    return nn.Sequential(nn.Linear(d_in, 16), nn.LeakyReLU(0.2), nn.Linear(16, d_out))


class GeneratorEMA:
    """Exponential moving average of the generator with a warm-up of the decay."""

    def __init__(self, generator, decay=0.95):
        self.source = generator
        self.average = copy.deepcopy(generator).requires_grad_(False)
        self.decay = decay
        self.updates = 0
        # keeps the training loop free of bookkeeping
        self.handle = register_optimizer_step_post_hook(self.on_step)

    @torch.no_grad()
    def on_step(self, optimizer, args, kwargs):
        self.updates += 1
        decay = min(self.decay, self.updates / (self.updates + 10))
        for avg, p in zip(self.average.parameters(), self.source.parameters()):
            avg.lerp_(p, 1 - decay)

    def close(self):
        self.handle.remove()


generator, critic = mlp(4, 1), mlp(1, 1)
ema = GeneratorEMA(generator)
opt_g = torch.optim.Adam(generator.parameters(), lr=5e-3, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(critic.parameters(), lr=5e-3, betas=(0.5, 0.9))
bce = nn.functional.binary_cross_entropy_with_logits

D_STEPS, G_STEPS = 3, 40
for it in range(G_STEPS):
    for _ in range(D_STEPS):
        real = 2.0 + 0.5 * torch.randn(64, 1)
        fake = generator(torch.randn(64, 4)).detach()
        loss_d = bce(critic(real), torch.ones(64, 1)) + bce(critic(fake), torch.zeros(64, 1))
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
    loss_g = bce(critic(generator(torch.randn(64, 4))), torch.ones(64, 1))
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if (it + 1) % 20 == 0:
        print(f"iter {it + 1} loss_d {loss_d.item():.3f} loss_g {loss_g.item():.3f}")
ema.close()

print("generator updates:", G_STEPS, " averaged:", ema.updates)
z = torch.randn(512, 4)
with torch.no_grad():
    print(f"mean of the samples: generator {generator(z).mean().item():.3f}"
          f"  average {ema.average(z).mean().item():.3f}")
    gap = sum((a - p).norm() for a, p in zip(ema.average.parameters(), generator.parameters()))
    print(f"distance average/generator {gap.item():.4f}")
