# TH421
"""Update the discriminator in its backward pass, and then train the generator through it."""

import torch
from torch import nn

torch.manual_seed(0)
generator, discriminator = nn.Linear(2, 2), nn.Linear(2, 1)
optimizer = torch.optim.SGD(generator.parameters(), lr=0.1)
inner = torch.optim.SGD(discriminator.parameters(), lr=0.1)


def update(parameter):
    inner.step()
    parameter.grad = None


discriminator.weight.register_post_accumulate_grad_hook(update)  # <- TH421
for _ in range(3):
    fake = generator(torch.randn(4, 2))
    discriminator(fake.detach()).mean().backward()
    optimizer.zero_grad()
    (-discriminator(fake)).mean().backward()
    optimizer.step()
result = discriminator.weight
