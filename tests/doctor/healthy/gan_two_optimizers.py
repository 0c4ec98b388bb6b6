"""A GAN with two optimizers; hooks log the discriminator's gradients and what flows back into the generator."""

import torch
import torch.nn.functional as F
from torch import nn

generator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))

d_norms, into_generator = [], []
discriminator[0].weight.register_hook(lambda grad: d_norms.append(grad.norm().item()))
generator.register_full_backward_hook(lambda m, grad_in, grad_out: into_generator.append(grad_out[0].norm().item()))

losses = []
for step in range(8):
    real = torch.randn(32, 2) * 0.3 + 1
    fake = generator(torch.randn(32, 4))

    opt_d.zero_grad()
    on_real, on_fake = discriminator(real), discriminator(fake.detach())
    loss_d = F.softplus(-on_real).mean() + F.softplus(on_fake).mean()
    loss_d.backward()
    opt_d.step()

    opt_g.zero_grad()
    loss_g = F.softplus(-discriminator(fake)).mean()
    loss_g.backward()
    opt_g.step()
    losses.append((loss_d.item(), loss_g.item()))
weights = [p.detach().clone() for net in (generator, discriminator) for p in net.parameters()]
result = [losses, d_norms, into_generator, weights]
