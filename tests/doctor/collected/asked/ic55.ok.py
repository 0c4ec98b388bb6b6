"""GAN with a spectrally normalised critic; critic gradients are metered and masked by hooks."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(22)
torch.set_num_threads(1)


class Critic(nn.Module):
    def __init__(self, inputs=4, hidden=32):
        super().__init__()
        self.first = spectral_norm(nn.Linear(inputs, hidden))
        self.second = spectral_norm(nn.Linear(hidden, hidden))
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        x = F.leaky_relu(self.first(x), 0.2)
        x = F.leaky_relu(self.second(x), 0.2)
        return self.out(x)


class FrozenColumns:
    """Keeps the given input columns of a normalised layer as they were initialised."""

    def __init__(self, layer, columns):
        self.weight = layer.parametrizations.weight.original
        self.mask = torch.ones_like(self.weight)
        self.mask[:, columns] = 0
        self.start = self.weight.detach().clone()
        self.handle = self.weight.register_hook(lambda grad: grad * self.mask)

    def drift(self):
        return ((self.weight.detach() - self.start) * (1 - self.mask)).abs().max().item()


class GradientMeter:
    def __init__(self, module):
        self.total = 0.0
        self.events = 0
        self.params = [p for p in module.parameters() if p.requires_grad]
        self.handles = [p.register_post_accumulate_grad_hook(self.note) for p in self.params]

    def note(self, param):
        self.total += param.grad.pow(2).sum().item()
        self.events += 1

    def summary(self):
        backward_passes = self.events / len(self.params)
        return backward_passes, math.sqrt(self.total / backward_passes)


def critic_step(critic, generator, optimizer, real):
    with torch.no_grad():
        fake = generator(torch.randn(len(real), 6))
    optimizer.zero_grad()
    loss = F.relu(1 - critic(real)).mean() + F.relu(1 + critic(fake)).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def generator_step(critic, generator, optimizer, count):
    critic.requires_grad_(False)
    optimizer.zero_grad()
    loss = -critic(generator(torch.randn(count, 6))).mean()
    loss.backward()
    optimizer.step()
    critic.requires_grad_(True)
    return loss.item()


def real_batch(count):
    base = torch.randn(count, 2)
    return torch.cat([base, base.flip(1) * 0.5 + 1.0], dim=1)


def main():
    generator = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
    critic = Critic()
    frozen = FrozenColumns(critic.first, columns=[3])
    meter = GradientMeter(critic)
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.0, 0.9))
    c_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
    for step in range(80):
        c_loss = critic_step(critic, generator, c_optimizer, real_batch(64))
        g_loss = generator_step(critic, generator, g_optimizer, 64)
        if step % 20 == 19:
            print(f"step {step + 1}: critic {c_loss:.3f}  generator {g_loss:.3f}")
    passes, rms = meter.summary()
    print(f"critic backward passes {passes:.0f}, rms gradient norm {rms:.3f}")
    print(f"largest change of the frozen column {frozen.drift():.6f}")
    frozen.handle.remove()
    for handle in meter.handles:
        handle.remove()


if __name__ == "__main__":
    main()
