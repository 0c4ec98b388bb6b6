# TH203
"""Count the discriminator's gradients with a post-accumulate hook, in a generator step that froze it."""

import torch
from torch import nn

generator, discriminator = nn.Linear(2, 4), nn.Linear(4, 1)
count = []
for p in discriminator.parameters():
    p.register_post_accumulate_grad_hook(lambda p: count.append(p.grad.norm()))  # <- TH203
discriminator.requires_grad_(False)
optimizer = torch.optim.Adam(generator.parameters(), lr=1e-2)
for _ in range(3):
    optimizer.zero_grad()
    (-discriminator(generator(torch.randn(8, 2))).mean()).backward()
    optimizer.step()
result = [generator.weight.detach(), *count]
