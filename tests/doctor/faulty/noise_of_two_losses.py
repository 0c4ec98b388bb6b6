# TH429
"""Decay the noise on the gradients of a discriminator. The loss of the generator lets it decay, too."""

import torch
from torch import nn

torch.manual_seed(0)
generator, discriminator = nn.Linear(2, 2), nn.Linear(2, 1)


class Noise:
    def __init__(self) -> None:
        self.calls = 0

    def add(self, grad: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return grad + torch.randn_like(grad) / self.calls


noise = Noise()
discriminator.weight.register_hook(noise.add)  # <- TH429
for _ in range(3):
    fake = generator(torch.randn(4, 2))
    discriminator(fake.detach()).mean().backward()
    (-discriminator(fake)).mean().backward()
result = noise.calls
